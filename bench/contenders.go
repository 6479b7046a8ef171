package main

import (
	"context"

	"github.com/weir-go/weir"
)

// The algorithms that contenders are compared by.
const (
	bucketed = "bucket"  // token bucket and GCRA, which grant the same
	slid     = "sliding" // a window's count, and of the one before what still reaches back
	fixed    = "fixed"   // a window's count; it begins with the key's first ask
)

// contender is a limiter as a service would use it. It is Weir's if at is set, else it
// is in one process if local is, and in Redis if remote is.
type contender struct {
	name      string
	algorithm string
	at        place
	noLeases  bool
	local     func(quota) (*instance, error)
	remote    func(q quota, addr string) (*instance, error)
	note      string // what it does less, or else; for the table's readers
}

// place is where Weir's checks are decided.
type place int

const (
	notWeir place = iota
	owned         // each node is asked for the keys that it owns
	spread        // nodes are asked for any key, and where there is one for others' alone
)

// contenders are in the table's order.
func contenders() []contender {
	const (
		several = "Each instance has a count of its own."
		atRedis = "In Redis, on this machine and without replicas; allocations are the clients', bytes are Redis'."
	)
	return []contender{
		{name: "weir-owned", algorithm: bucketed, at: owned},
		{name: "weir-owned", algorithm: slid, at: owned},
		{name: "weir-owned", algorithm: fixed, at: owned, note: "Each node is asked for keys that it owns alone. Where there is one, it is one of a ring of ten whose others are not there."},
		{name: "weir-leased", algorithm: bucketed, at: spread},
		{name: "weir-leased", algorithm: slid, at: spread},
		{name: "weir-leased", algorithm: fixed, at: spread, note: "As weir-forwarded, but with the default: owners lend units of hot keys to who asks for them."},
		{name: "weir-forwarded", algorithm: bucketed, at: spread, noLeases: true},
		{name: "weir-forwarded", algorithm: slid, at: spread, noLeases: true, note: "With NoLeases. One node asks for keys that another process owns, which has a replica of each here; four are asked for any key, a quarter of them its own. Allocations and bytes are those of all nodes."},
		{name: "x-time-rate", algorithm: bucketed, local: newXTimeRate, note: "golang.org/x/time/rate in 256 locked maps. It never forgets a key. " + several},
		{name: "throttled", algorithm: bucketed, local: newThrottled, note: "Its store in memory, without a bound: it never forgets a key. A check that loses ten races for its key is an error, and not admitted. " + several},
		{name: "httprate", algorithm: slid, local: newHTTPRate, note: "Its counter, under one lock as in its middleware, without the headers. It has a hash of 64 bits in the key's place. Windows begin at the same time for all keys. " + several},
		{name: "go-limiter", algorithm: fixed, local: newGoLimiter, note: "Its store in memory. It looks every six hours for keys to forget. " + several},
		{name: "ulule", algorithm: fixed, local: newUlule, note: "Its store in memory. " + several},
		{name: "redis_rate", algorithm: bucketed, remote: newRedisRate, note: atRedis},
		{name: "rueidis-gcra", algorithm: bucketed, remote: newScript(gcra), note: "A script over rueidis, which pipelines. " + atRedis},
		{name: "rueidis-sliding", algorithm: slid, remote: newScript(sliding), note: "A script over rueidis, which pipelines. Windows begin at the same time for all keys. " + atRedis},
	}
}

// limit is the quota as a limit of Weir's.
func (c contender) limit(q quota) weir.Limit {
	l := weir.Limit{Name: "bench", Rate: q.units, Per: q.window(), NoLeases: c.noLeases}
	switch c.algorithm {
	case bucketed:
		l.Algorithm, l.Rate, l.Per, l.Burst = weir.TokenBucket, 1, q.interval, q.units
	case slid:
		l.Algorithm = weir.SlidingWindow
	case fixed:
		l.Algorithm = weir.FixedWindow
	}
	return l
}

// weirInstance is a node, and one limiter of it.
type weirInstance struct {
	instance
	node    *weir.Node
	limiter *weir.Limiter
}

// newWeirNode starts a node, among others that are reached at the addresses unless it
// is alone on its ring. But for MaxKeys, which a million keys need, it is configured as
// by default.
func newWeirNode(limit weir.Limit, alone bool, join []string) (*weirInstance, error) {
	var n *weir.Node
	var err error
	if alone {
		n, err = startOwner(2 * million)
	} else {
		n, err = weir.Start(context.Background(), weir.Config{Name: "bench", Bind: "127.0.0.1:0", Join: join, MaxKeys: 2 * million, Logger: quiet()})
	}
	if err != nil {
		return nil, err
	}
	l, err := n.Limiter(limit)
	if err != nil {
		_ = n.Close()
		return nil, err
	}
	return &weirInstance{instance{func(key string) outcome {
		d, err := l.Allow(context.Background(), key)
		return decidedByWeir(d, err)
	}, n.Close}, n, l}, nil
}

func decidedByWeir(d weir.Decision, err error) (o outcome) {
	switch d.Source {
	case weir.Owner, weir.Pushback, weir.Leased:
		o = here
	case weir.Forwarded, weir.Relayed:
	default:
		o = stray
	}
	if err != nil {
		return o | failed
	}
	if d.Allowed {
		o |= admitted
	}
	return o
}
