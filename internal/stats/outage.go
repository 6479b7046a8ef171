package stats

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// OutageQuiet is the time without an event after which an outage is over, and after which a member
// is no longer missing in the outage.
const OutageQuiet = 5 * time.Second

// maxPast is the maximum number of past outages that an OutageTracker remembers.
const maxPast = 20

// OutageDecisions counts the checks of a node that were decided without the owner of the key, by
// the source of the decision.
type OutageDecisions struct{ StandIn, Budget, FailedOpen, FailedClosed uint64 }

func (d OutageDecisions) sum() uint64 { return d.StandIn + d.Budget + d.FailedOpen + d.FailedClosed }

func (d OutageDecisions) after(before OutageDecisions) OutageDecisions {
	return OutageDecisions{
		d.StandIn - before.StandIn, d.Budget - before.Budget,
		d.FailedOpen - before.FailedOpen, d.FailedClosed - before.FailedClosed,
	}
}

// OutageFacts contains the knowledge of a node at a moment.
type OutageFacts struct {
	Unreached []string        // members of the roster that no path leads to
	Reached   int             // number of members on the side of this node, including itself
	Roster    int             // number of members of the roster
	Expect    int             // the size that the roster should have at least; 0 if none is configured
	Left      bool            // the node itself has left, and expects no roster
	Decisions OutageDecisions // since the start of the node
}

// OutageFacts returns the facts of a node that has the present view v.
func (m *Limits) OutageFacts(v *view.View) OutageFacts {
	f := OutageFacts{Reached: v.Side, Roster: len(v.Points), Expect: v.Expect, Left: v.Self < 0}
	for _, i := range v.Points {
		if v.Next[i] < 0 {
			f.Unreached = append(f.Unreached, v.Members[i].Name)
		}
	}
	for _, limit := range m.AllCounters() {
		decisions := func(source wire.Source) uint64 { o := limit.Sum(source); return o.Allowed + o.Denied }
		f.Decisions.StandIn += decisions(wire.StandIn)
		f.Decisions.Budget += decisions(wire.Budget)
		f.Decisions.FailedOpen += decisions(wire.FailedOpen)
		f.Decisions.FailedClosed += decisions(wire.FailedClosed)
	}
	return f
}

// OutageStats describes the current outage, as of the last Observe. Without an outage, only Count
// is set.
type OutageStats struct {
	Since     time.Time
	Missing   []string // sorted: members that were missing within the last OutageQuiet
	Decisions uint64   // number of decisions without the owner since the outage began
	Count     uint64   // number of outages that have begun
}

// OutageTracker follows the outage of a node, and returns the lines for its log. The zero
// OutageTracker has seen no outage. An OutageTracker is safe for concurrent use.
//
// An outage begins when a member of the roster is not reached, when the roster has been below the
// expected size for OutageQuiet, or when a check is decided without the owner of its key. It ends
// when none of these conditions has been true for OutageQuiet. These invariants hold:
//
//   - There is a single outage at a time. A condition that recurs within OutageQuiet belongs to the same
//     outage. Otherwise a flapping connection would fill the log.
//   - Observe returns at most one line. So if it is called once a second, the number of lines is bounded.
//   - A member that was lost between two calls of Observe counts in the second call. The caller reports
//     such members with RecordLosses, because no later view shows them as lost.
//   - While MayRest returns true, only an event changes the facts: a new view, a lost member or a decision
//     without the owner. Until then the caller need not call Observe. With the event it calls Resume.
//   - Nodes that start or stop together log no outage: the roster of each is short for a moment, and
//     no member is missing.
//   - Counts of decisions only increase, and the decisions of an outage are the difference of two counts.
//     Any other count of decisions, even a smaller count, is treated as an outage.
//   - No line contains a key.
//
// Time is an argument, in nanoseconds since 1970 by a clock that does not step.
type OutageTracker struct {
	// Event signals each event that may begin an outage, after the event has changed the facts. It is
	// nil if the caller calls Observe at an interval, and never rests.
	Event chan struct{}

	mu        sync.Mutex
	lost      map[string]int64 // members that were lost since the last Observe, and the times of their losses
	observed  int64            // when Observe was last called
	full      int64            // when the roster was last seen to have at least the expected size
	decisions OutageDecisions  // decisions, as of the last Observe
	outage    *outage          // nil if there is none
	count     uint64
	past      []PastOutage // the newest outage is last
}

// PastOutage is an outage that has ended.
type PastOutage struct {
	Since, Until time.Time // Until is when a condition of the outage was last true
	Missing      []string  // sorted: members that were missing at any time of the outage
	Decisions    uint64
}

// outage is the current outage.
type outage struct {
	since   int64
	active  int64            // when a condition of the outage was last true
	before  OutageDecisions  // decisions before the outage
	missing map[string]int64 // the time at which each member was last found to be missing
	ever    map[string]int64 // like missing, for all members that were missing at any time of the outage
	named   []string         // the missing members in the last line
}

// RecordLosses records the names of members that this node has lost: a member that did not answer a check
// in time, or that a new view avoids. The next Observe counts them as missing if there is an outage then.
func (t *OutageTracker) RecordLosses(now int64, members ...string) {
	if len(members) == 0 {
		return
	}
	t.mu.Lock()
	t.addLosses(now, members)
	t.mu.Unlock()
	t.Stir()
}

// Stir signals Event. It does not block.
func (t *OutageTracker) Stir() { env.Signal(t.Event) }

// MayRest reports whether the facts stay true until the next event: the last Observe has found no
// outage, and a roster of the expected size.
func (t *OutageTracker) MayRest() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.outage == nil && t.full == t.observed
}

// Resume ends a rest: the caller calls it with the first event after MayRest. The facts of the last
// Observe were true until the time now, so the next outage begins at that time or later.
func (t *OutageTracker) Resume(now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.observed, t.full = now, now
}

// addLosses records the times of losses. The caller must hold t.mu.
func (t *OutageTracker) addLosses(now int64, members []string) {
	if t.lost == nil {
		t.lost = make(map[string]int64)
	}
	for _, name := range members {
		if _, known := t.lost[name]; !known {
			t.lost[name] = now
		}
	}
}

// Restart forgets all losses until now. A node that starts is connected to no member at first, and
// its roster is short, which is not an outage.
func (t *OutageTracker) Restart(now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost, t.observed, t.full = nil, now, now
}

// Observe processes the facts of the time now. It returns the line to log, or nil.
func (t *OutageTracker) Observe(f OutageFacts, now int64) *Line {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addLosses(now, f.Unreached)
	lasts, began := len(f.Unreached) > 0, now
	if f.Roster >= f.Expect || f.Left {
		t.full = now
	} else if t.outage != nil || elapsed(t.full, now) >= OutageQuiet {
		lasts, began = true, t.full
	}
	if f.Decisions != t.decisions {
		lasts, began = true, min(began, t.observed)
	}
	lost, before := t.lost, t.decisions
	t.lost, t.observed, t.decisions = nil, now, f.Decisions
	o := t.outage
	switch {
	case o == nil && !lasts:
		return nil
	case o == nil:
		for _, at := range lost {
			began = min(began, at)
		}
		o = &outage{since: began, before: before, missing: make(map[string]int64), ever: make(map[string]int64)}
		t.outage, t.count = o, t.count+1
		o.recordLosses(lost, now)
		return o.line(begun, &f, now)
	case lasts:
		o.recordLosses(lost, now)
	case elapsed(o.active, now) >= OutageQuiet:
		t.outage = nil
		line := o.line(ended, &f, o.active)
		line.missing = slices.Sorted(maps.Keys(o.ever))
		t.past = append(t.past[max(0, len(t.past)+1-maxPast):], PastOutage{time.Unix(0, o.since), time.Unix(0, o.active), line.missing, line.decisions.sum()})
		return line
	}
	return o.change(&f, now)
}

// elapsed returns the time that has passed since the time at, and the maximum duration if
// the clock has stepped back.
func elapsed(at, now int64) time.Duration {
	if now < at {
		return 1<<63 - 1
	}
	return time.Duration(now - at)
}

// recordLosses records that the outage lasts, and which members are missing in it.
func (o *outage) recordLosses(lost map[string]int64, now int64) {
	o.active = now
	for name := range lost {
		o.missing[name], o.ever[name] = now, now
	}
}

// change returns a line if members have become missing since the last line, or else if some members
// are back. If all are back, the outage is about to end, and there is no line.
func (o *outage) change(f *OutageFacts, now int64) *Line {
	maps.DeleteFunc(o.missing, func(_ string, at int64) bool { return elapsed(at, now) >= OutageQuiet })
	kept := 0
	for _, name := range o.named {
		if _, missing := o.missing[name]; missing {
			kept++
		}
	}
	switch {
	case len(o.missing) > kept:
		return o.line(grown, f, now)
	case kept > 0 && kept < len(o.named):
		return o.line(shrunk, f, now)
	}
	return nil
}

// Stats returns the current outage.
func (t *OutageTracker) Stats() OutageStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := OutageStats{Count: t.count}
	if o := t.outage; o != nil {
		s.Since = time.Unix(0, o.since)
		s.Missing = slices.Sorted(maps.Keys(o.missing))
		s.Decisions = t.decisions.after(o.before).sum()
	}
	return s
}

// PastOutages returns the last outages that have ended, at most 20, the newest first.
func (t *OutageTracker) PastOutages() []PastOutage {
	t.mu.Lock()
	defer t.mu.Unlock()
	past := slices.Clone(t.past)
	slices.Reverse(past)
	return past
}
