package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

type kind uint8

const (
	start      kind = iota
	leave           // SIGTERM ends the gateway in order
	kill            // SIGKILL ends the gateway
	freeze          // SIGSTOP stops the gateway
	thaw            // SIGCONT continues the gateway
	reload          // all gateways read the rules again
	cut             // the gateway is cut off from all gateways that are not cut off themselves
	heal            // all gateways reach the gateway again
	slowDown        // messages between the gateway and other gateways take longer
	speedUp         // these messages take as long as before slowDown
	demand          // the demand of the regions moves
	sever           // a region is cut off from the other regions
	rejoin          // all regions reach the region again
	disconnect      // all connections of the gateway's node end
	stopAll         // all gateways stop at once, and start again
)

const stoodInFor = "all other gateways know that it is gone: members with copies of its counts answer for its keys"

type kindOf struct {
	name      string
	guarantee guarantee // the guarantee that judges windows with such a step
	seen      string    // the effect, once all gateways have seen the step
	happened  string    // the words for it in the verdict
	does      string    // the announcement for gateway {n} with process {pid}
}

// kinds describes each kind. A change of the rules loosens no bound. A check that was
// decided without authority loosens the bounds of the windows that contain it.
var kinds = [...]kindOf{
	start:      {"start", deployed, "it has its counts, is ready, and all ask it for the keys that it owns", "gateways started", ""},
	leave:      {"leave", deployed, "it has handed its counts over, left and ended", "others left in order", "gateway {n}, process {pid}, is told to leave by SIGTERM"},
	kill:       {"kill", crashed, stoodInFor, "one was killed", "gateway {n}, process {pid}, dies by SIGKILL"},
	freeze:     {"freeze", timedOut, stoodInFor, "one was frozen", "gateway {n}, process {pid}, is frozen by SIGSTOP"},
	thaw:       {"thaw", timedOut, "all gateways are connected to it and ask it again", "", "gateway {n} continues by SIGCONT, and may not know that it was away"},
	reload:     {"reload", healthy, "all gateways decide by the new rules", "their rules changed", "the rules file changes: {change}"},
	cut:        {"cut", timedOut, "", "", "gateway {n} is cut off from the gateways that are not"},
	heal:       {"heal", timedOut, "all gateways are connected to each other again", "", "gateway {n} is no longer cut off"},
	slowDown:   {"slow", timedOut, "", "", fmt.Sprintf("messages between gateway {n} and other gateways take %v more in each direction", slowBy)},
	demand:     {"demand", healthy, "", "demand moved", ""},
	sever:      {"sever", healthy, "", "one region was cut off", ""},
	rejoin:     {"rejoin", healthy, "", "", ""},
	disconnect: {"sever", severed, "all gateways are connected to each other again", "", "all connections of gateway {n}'s node end"},
	stopAll:    {"stop", restarted, "all gateways have started, and are connected to each other", "", ""},
	speedUp:    {"speed up", timedOut, "", "", "messages between gateway {n} and other gateways take no longer than before"},
}

func (k kind) String() string       { return kinds[k].name }
func (k kind) guarantee() guarantee { return kinds[k].guarantee }

// step is a planned event of a gateway, after all gateways have seen the previous step.
type step struct {
	kind    kind
	gateway int           // index
	phase   string        // the phase that begins with it; empty if the phase continues
	after   time.Duration // earliest time since the beginning of traffic
	calm    time.Duration // minimum time since all gateways have seen the previous step
	asks    []int         // the regions from which the region of each request is drawn from then on
}

func (s step) String() string {
	switch s.kind {
	case reload:
		return "reload the rules"
	case demand, sever, rejoin:
		return s.phase
	}
	return fmt.Sprintf("%v gateway %d", s.kind, s.gateway+1)
}

// plan distributes the steps over the run. They are more than a Per apart, so that no
// window contains two steps, except the steps of the rolling restart. A gateway joins and
// leaves again. All gateways restart in turn. The rules change. A random gateway is killed
// and replaced, and another is frozen and thawed. On a system without signals, no gateway
// leaves, restarts in turn or is frozen.
func plan(nodes int, duration time.Duration, random *rand.Rand) []step {
	var steps []step
	add := func(percent int, k kind, gateway int, phase string) {
		s := step{kind: k, gateway: gateway, phase: phase, after: duration * time.Duration(percent) / 100}
		if percent > 0 {
			s.calm = window(duration) + window(duration)/4
		}
		steps = append(steps, s)
	}
	victims := random.Perm(nodes)
	add(7, start, nodes, "scale-out: one more gateway starts")
	if lab.Signals {
		add(17, leave, nodes, "scale-in: this gateway leaves")
		for gateway := range nodes {
			if gateway == 0 {
				add(27, leave, gateway, "rolling restart: all gateways, one after the other")
			} else {
				add(0, leave, gateway, "")
			}
			add(0, start, gateway, "")
		}
	}
	add(39, reload, 0, "")
	add(49, kill, victims[0], "crash: a gateway is killed")
	add(58, start, victims[0], "replacement: this gateway starts again")
	if lab.Signals {
		add(70, freeze, victims[1], "freeze: a gateway is paused")
		add(82, thaw, victims[1], "thaw: this gateway continues")
	}
	return steps
}

// window returns the Per of the limit for a run of this duration: 2 s if the run takes 36
// s or longer, and less in a shorter run, so that steps stay apart.
func window(duration time.Duration) time.Duration {
	return min(2*time.Second, (duration / 18).Truncate(100*time.Millisecond))
}
