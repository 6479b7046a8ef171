package weir

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/view"
)

// OutageStats is the outage under way, as of the last second. An outage is while
// members of the roster are not reached, or the roster is below Config.Expect, or
// checks of this node are decided by a stand-in, by shares, or as FailOpen and
// FailClosed say; it is over when nothing of that has been so for five seconds.
type OutageStats struct {
	Since time.Time // zero if there is none; the fields below, but for Count, are zero then, too
	// Missing is the members, sorted, that checks went without in the last five seconds:
	// those that are not reached, that have stalled (they leave asks of this node
	// unanswered and say nothing), or that did not answer a check in time. It is empty
	// where checks went without an owner for other reasons: deadlines that are too
	// short, a relay that was late, a roster below Config.Expect.
	Missing   []string
	Decisions uint64 // of this node's own checks since then, made in one of those ways: Stats.Decisions has them by Source
	Count     uint64 // outages that have begun since Start
}

const (
	// watchEvery is how often a node looks whether there is an outage, and so the
	// least time between two lines of its log about that.
	watchEvery = time.Second
	// outageQuiet is how long nothing may have happened until an outage, or that a
	// member is missing, is over: what flaps is one outage.
	outageQuiet = 5 * time.Second
	// maxMissingNames bounds the members that one line of the log names.
	maxMissingNames = 20
)

// makeshift counts decisions that the owner did not make, by how they were made
// instead.
type makeshift [FailedClosed + 1 - StandIn]uint64

func (m *makeshift) sum() (sum uint64) {
	for _, n := range m {
		sum += n
	}
	return sum
}

// makeshift reads the counters. It costs the checks nothing but that the lines of
// the cache are read once a second.
func (m *limitMeters) makeshift() (counts makeshift) {
	m.all(func(_ string, limit *limitMeter) {
		for i := range counts {
			o := limit.sum(StandIn + Source(i))
			counts[i] += o.Allowed + o.Denied
		}
	})
	return counts
}

// outages is what a node knows of the outage under way, if there is one. Times are
// by Node.steady.
type outages struct {
	mu sync.Mutex
	// lost is the members that checks went without since the last look, and since when.
	lost map[string]int64

	looked int64     // when it last did
	seen   makeshift // decisions until then

	since   int64            // when the outage began, 0 if there is none
	active  int64            // when it last was seen to last
	before  makeshift        // decisions until it began
	missing map[string]int64 // the members, and when each was last seen to be missing
	ever    map[string]bool  // those that were missing at any time of the outage
	named   []string         // the missing, as the last line of the log has them
	count   uint64
}

// note takes in a view: in which a member is lost for a moment only, the next look
// would not find it.
func (o *outages) note(v *view.View, now int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, i := range v.Points {
		// Checks go directly, or, a while after a loss, through others; else to a stand-in.
		if i == v.Self || v.Direct[i] && !v.Stalls(i) || v.Next[i] >= 0 && v.Overdue(i, now) {
			continue
		}
		o.lose(v.Members[i].Name, now)
	}
}

// waited notes that a check was not answered in time by a member that was asked
// directly.
func (o *outages) waited(name string, now int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lose(name, now)
}

// lose notes that a member is lost. o.mu is held.
func (o *outages) lose(name string, now int64) {
	if o.lost == nil {
		o.lost = make(map[string]int64)
	}
	if _, known := o.lost[name]; !known {
		o.lost[name] = now
	}
}

// restart forgets what Start has noted before the members were heard.
func (o *outages) restart(now int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lost, o.looked = nil, now
}

// watchOutages looks once a second, until the node closes, and logs what has begun,
// changed or ended: one line at most each time.
func (n *Node) watchOutages() {
	tick := time.NewTimer(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-n.life.Done():
			return
		}
		if line := n.outages.look(n.view.Load(), n.meters.limits.makeshift(), n.steady()); line != nil {
			line.log(n.cfg.Logger)
		}
		tick.Reset(watchEvery)
	}
}

// look takes in the view of now and the decisions until now, and returns what is to
// be logged, nil if that is nothing.
func (o *outages) look(v *view.View, seen makeshift, now int64) *outageLine {
	o.mu.Lock()
	defer o.mu.Unlock()
	since := now
	apart := len(v.Points) < v.Expect && v.Self >= 0
	for _, i := range v.Points {
		if v.Next[i] < 0 {
			apart = true
			o.lose(v.Members[i].Name, now)
		}
	}
	active := apart
	if seen != o.seen {
		active, since = true, o.looked
	}
	lost := o.lost
	before := o.seen
	o.lost, o.looked, o.seen = nil, now, seen
	if active {
		if o.since == 0 {
			for _, at := range lost {
				since = min(since, at)
			}
			o.since, o.before, o.count = since, before, o.count+1
			o.missing, o.ever, o.named = make(map[string]int64), make(map[string]bool), nil
			o.take(lost, now)
			return o.line(outageBegins, v, now)
		}
		o.take(lost, now)
	}
	switch {
	case o.since == 0:
		return nil
	case uint64(now-o.active) >= uint64(outageQuiet):
		line := o.line(outageEnds, v, o.active)
		line.missing = slices.Sorted(maps.Keys(o.ever))
		o.since = 0
		return line
	}
	maps.DeleteFunc(o.missing, func(_ string, at int64) bool { return uint64(now-at) >= uint64(outageQuiet) })
	missing := slices.Sorted(maps.Keys(o.missing))
	switch {
	case slices.ContainsFunc(missing, func(name string) bool { return !slices.Contains(o.named, name) }):
		return o.line(outageGrows, v, now)
	case len(missing) > 0 && len(missing) < len(o.named):
		return o.line(outageShrinks, v, now)
	}
	return nil
}

// take notes that the outage lasts, and who is missing in it.
func (o *outages) take(lost map[string]int64, now int64) {
	o.active = now
	for name := range lost {
		o.missing[name], o.ever[name] = now, true
	}
}

// stats is Stats.Outage.
func (o *outages) stats() OutageStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := OutageStats{Count: o.count}
	if o.since != 0 {
		s.Since = time.Unix(0, o.since)
		s.Missing = slices.Sorted(maps.Keys(o.missing))
		s.Decisions = o.seen.sum() - o.before.sum()
	}
	return s
}

// turn is what has become of an outage.
type turn uint8

const (
	outageBegins turn = iota
	outageGrows
	outageShrinks
	outageEnds
)

// outageLine is one line of the log. It has no key in it.
type outageLine struct {
	turn      turn
	since     int64
	lasted    time.Duration
	missing   []string
	reached   int // members of the roster that are on this side, this node included
	roster    int
	expect    int
	decisions makeshift
}

// line is what to log of the outage; o.mu is held. It names all who are missing, so
// the next one tells of changes since.
func (o *outages) line(turn turn, v *view.View, now int64) *outageLine {
	o.named = slices.Sorted(maps.Keys(o.missing))
	l := &outageLine{
		turn: turn, since: o.since, lasted: time.Duration(now - o.since),
		missing: o.named, reached: v.Side, roster: len(v.Points), expect: v.Expect,
	}
	for i := range l.decisions {
		l.decisions[i] = o.seen[i] - o.before[i]
	}
	return l
}

func (l *outageLine) log(to *slog.Logger) {
	missing := l.missing
	if more := len(missing) - maxMissingNames; more > 0 {
		missing = append(slices.Clone(missing[:maxMissingNames]), fmt.Sprintf("and %d more", more))
	}
	of := func(s Source) uint64 { return l.decisions[s-StandIn] }
	attrs := []any{
		"since", time.Unix(0, l.since), "lasted", l.lasted.Round(time.Millisecond).String(), "missing", missing,
		"reached", l.reached, "roster", l.roster, "expect", l.expect,
		"decisions", l.decisions.sum(), "stand_in", of(StandIn), "budget", of(Budget), "failed_open", of(FailedOpen), "failed_closed", of(FailedClosed),
	}
	switch l.turn {
	case outageBegins:
		to.Warn("outage began: checks are decided by stand-ins, by shares, or as FailOpen and FailClosed say", attrs...)
	case outageGrows:
		to.Warn("outage grew: further members are missing", attrs...)
	case outageShrinks:
		to.Info("outage shrank: some members are back, others are still missing", attrs...)
	case outageEnds:
		to.Info("outage ended: every check is decided by the owner of its key again", attrs...)
	}
}
