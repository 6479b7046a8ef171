package main

import (
	"math/rand/v2"
	"time"
)

// kind is what happens to a gateway.
type kind uint8

const (
	kill kind = iota
	start
	freeze
	thaw
)

func (k kind) String() string {
	return [...]string{"kill", "start", "freeze", "thaw"}[k]
}

// fault is something that will happen to a gateway.
type fault struct {
	kind    kind
	gateway int           // index
	after   time.Duration // from the beginning of traffic
}

// plan spreads the faults over the run: more than one Per apart, so that no
// window holds two, with as much calm before the first and after the last. Two
// gateways are chosen, one to be killed and replaced, one to be frozen and
// thawed.
func plan(nodes int, duration time.Duration, random *rand.Rand) []fault {
	victims := random.Perm(nodes)
	part := func(percent int) time.Duration { return duration * time.Duration(percent) / 100 }
	return []fault{
		{kill, victims[0], part(20)},
		{start, victims[0], part(38)},
		{freeze, victims[1], part(60)},
		{thaw, victims[1], part(78)},
	}
}

// window is the limit's Per for a run of this length: 2 s in a run of 26 s and
// more, and less in a shorter one, so that faults stay apart.
func window(duration time.Duration) time.Duration {
	return min(2*time.Second, (duration / 13).Truncate(100*time.Millisecond))
}

// aftermath is how long after a fault windows may begin that hold something of
// it: one Per, and at least the second in which gateways hear of it.
func aftermath(per time.Duration) time.Duration { return max(per, time.Second) }
