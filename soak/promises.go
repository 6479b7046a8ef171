package main

import (
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/bounds"
	"github.com/weir-go/weir/internal/lab"
)

// kind is what was done to the cluster.
type kind uint8

const (
	calm    kind = iota // nothing
	reload              // of the rules
	deploy              // a node left, and started again, with other secrets or the same
	kill                // SIGKILL, and a start
	freeze              // SIGSTOP, and SIGCONT
	sever               // all connections of a node ended
	stop                // of all nodes, and a start of all with their snapshots
	stalled             // a check was decided without the owner though nothing was done
	kinds
)

func (k kind) String() string {
	return [...]string{"calm", "reload", "deploy", "kill", "freeze", "connections broken", "stop of all", "answered without the owner"}[k]
}

type span = lab.Interval

// fault is something that was done to a node, until every node heard every other again.
type fault struct {
	kind kind
	span
	node  int64         // -1: all
	rtt   time.Duration // how long a check took at most in the 2 s before, if that is known
	saved int64         // of a stop of all
}

// aftermath is for how long after a change of connectivity a window is judged by it:
// docs/partitions.md counts those of the two seconds before.
const aftermath = 2 * time.Second

// account is what came of the checks of one key under one limit.
type account struct {
	Admitted []span    `json:",omitempty"` // when each was asked
	Alone    []stoodIn `json:",omitempty"`
	Shared   []span    `json:",omitempty"` // decided within a share
	Denied   int64     `json:",omitempty"` // when the last check that was denied was asked
}

// accountOf is that of a limit and key. It is made when it is first asked for.
func accountOf(accounts map[string]*account, name string) *account {
	a := accounts[name]
	if a == nil {
		a = new(account)
		accounts[name] = a
	}
	return a
}

// stoodIn is when a stand-in decided a check, and for which node, -1 if that is not known.
type stoodIn struct {
	span
	Owner int64
}

// allowance is what a window may hold beyond what the limit grants, because of one
// fault. inFlight is what the key was admitted within a round trip of it, and unsaved what no
// snapshot has of a durable limit.
func allowance(k kind, l weir.Limit, inFlight, unsaved int64, rtt time.Duration) int64 {
	var s bounds.Situation
	switch k {
	case deploy:
		s.InFlight = 1 + int64(math.Ceil(float64(l.Rate)*float64(rtt)/float64(l.Per)))
	case kill:
		s.Crashes, s.InFlight = 1, inFlight
	case freeze, stalled:
		s.Late = 1
	case sever:
		s.Changes, s.Sides = 2, 2
	case stop:
		if durable(l) {
			s.Unsaved = unsaved
		} else { // the count begins again
			s.Bare = 1
		}
	}
	return bounds.Bound(&l, s) - bounds.Healthy(&l)
}

// audit judges the windows of one account.
func (a *account) audit(name string, l weir.Limit, faults []fault, rtt time.Duration, found *[kinds]lab.Fullest) {
	var occasions []lab.Occasion
	for _, f := range faults {
		inFlight, unsaved := int64(0), int64(0)
		if f.kind == kill {
			inFlight = lab.InFlight(a.Admitted, f.From, max(rtt, f.rtt))
		}
		if f.kind == stop {
			unsaved = a.since(&f)
		}
		occasions = append(occasions, lab.Occasion{Interval: lab.Between(f.From, f.To+int64(aftermath)), Kind: int(f.kind), Extra: allowance(f.kind, l, inFlight, unsaved, rtt)})
	}
	// A node spends its share if no other member answers. A stand-in for the node that a fault disturbs
	// belongs to the fault, and otherwise shows that an owner was late.
	late := slices.Clone(a.Shared)
	for _, s := range a.Alone {
		if !slices.ContainsFunc(faults, func(f fault) bool {
			return f.kind > reload && (f.node == s.Owner || f.node < 0) && lab.Between(f.From, f.To+int64(aftermath)).Touches(s.span)
		}) {
			late = append(late, s.span)
		}
	}
	for _, s := range late {
		occasions = append(occasions, lab.Occasion{Interval: lab.Between(s.From, s.To+int64(aftermath)), Kind: int(stalled), Extra: allowance(stalled, l, 0, 0, rtt), Once: true})
	}
	lab.JudgeWindows(found[:], name, a.Admitted, occasions, l.Per, bounds.Healthy(&l))
}

// filled is how much of its limit a key that is asked for without end got in the
// median calm window, in percent; false if there was none. Less than nearly all of it
// is denied for no reason.
func (a *account) filled(l weir.Limit, calmly []span) (percent int64, ok bool) {
	var parts []int64
	for _, s := range calmly {
		for begin := s.From; begin+int64(l.Per) <= s.To; begin += int64(l.Per) {
			held := int64(0)
			for _, one := range a.Admitted {
				if one.From >= begin && one.From < begin+int64(l.Per) {
					held++
				}
			}
			parts = append(parts, 100*held/l.Rate)
		}
	}
	if len(parts) == 0 {
		return 0, false
	}
	return median(parts), true
}
