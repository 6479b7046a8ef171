package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster/detect"
	"github.com/weir-go/weir/internal/bounds"
)

// invariant is a condition that holds in every run, whatever happens.
type invariant struct {
	name  string
	means string
	holds func(r *trial, broken func(at time.Duration, format string, args ...any))
}

// The names of the invariants.
const (
	boundInvariant       = "bound"
	anyTime              = "any time"
	promptInvariant      = "prompt"
	noErrors             = "no errors"
	settledInvariant     = "settled"
	oneAuthority         = "one authority"
	equalReplicas        = "equal replicas"
	accounted            = "accounted"
	shareGrant           = "share"
	absenceInvariant     = "no absence"
	exactInvariant       = "exact"
	heldInvariant        = "held"
	lostInvariant        = "not lost"
	backInvariant        = "given back"
	settledOnceInvariant = "settled once"
	keptInvariant        = "kept"
	bannedInvariant      = "banned"
)

// invariants are in the order in which verdicts are printed.
var invariants = []invariant{
	{boundInvariant, "no window of a limit's Per holds more units than the guarantees table allows", checkBounds},
	{anyTime, "while nothing changes, a bucket admits at most its Burst and the inflow, in any time", checkAnyTime},
	{promptInvariant, "no check takes longer than Timeout, or than twice Timeout while members report delays or connect", checkPrompt},
	{noErrors, "no check returns an error", checkErrors},
	{settledInvariant, "after all faults have ended, the nodes see each other and have sent all counts", checkSettled},
	{oneAuthority, "at the end, one node has authority over each key", checkAuthorities},
	{equalReplicas, "the replica of the stand-in equals the count of the owner, or lacks refunds that a crash may have taken", checkReplicas},
	{accounted, "at the end, the owner counts the units that were admitted since the last reset, each unit once", checkAccounts},
	{shareGrant, "a cluster grants a limit, and a side its share, less 5 %, if checks ask for more", checkShares},
	{exactInvariant, "until the first fault other than slowness, the owner of a key decides all checks if pauses are shorter than waits; with real gossip from 15 s on", checkExact},
	{absenceInvariant, "a running node that is not cut off or frozen is connected to all other nodes, however slow it is", checkAbsences},
	{heldInvariant, "no more units of an in_flight limit are granted than are free, and during an outage no more are held at once than the guarantees table allows", checkHeld},
	{lostInvariant, "the hold of a client is not lost within its ttl while nodes are deployed, crash or freeze one at a time", checkNotLost},
	{backInvariant, "units of an in_flight limit are free when they are released; if authority moves, 12 s after that or after the end of their holder", checkGivenBack},
	{keptInvariant, "while nothing changes, a critical check is denied only if critical checks have spent the kept units", checkKept},
	{bannedInvariant, "no check of a banned or paused key is admitted before the end that callers were told, and no key is banned after fewer denials than its limit states", checkBanned},
	{settledOnceInvariant, "a reservation is settled once, and without faults the spent units are exactly the settled units", checkSettledOnce},
}

// trial is a journal, sorted and grouped for the judge.
type trial struct {
	*Journal
	courses map[string]*course
	planet  *planet // nil without a Global limit
	asks    []*asks // the checks of each limit, key and region, without in-flight limits, whose units have no window
	flights []*asks // the checks and holds of each in-flight limit, key and region
}

// judge returns the invariants that do not hold. For most invariants it reports at most one
// violation of each count, because other violations follow from the same cause.
func judge(j *Journal) []Broken { return newTrial(j).judge() }

func (r *trial) judge() (all []Broken) {
	for _, i := range invariants {
		i.holds(r, func(at time.Duration, format string, args ...any) {
			all = append(all, Broken{i.name, at, fmt.Sprintf(format, args...)})
		})
	}
	return all
}

func newTrial(j *Journal) *trial {
	r := &trial{Journal: j, courses: make(map[string]*course)}
	end := j.Scenario.Lasts
	for i := range j.Checks {
		end = max(end, j.Checks[i].Answered)
	}
	for _, n := range j.Scenario.Nodes {
		if r.courses[n.Region] == nil {
			r.courses[n.Region] = courseOf(j.Scenario, n.Region, end)
		}
	}
	if j.Scenario.hasGlobal() {
		r.planet = planetOf(j.Scenario, r.courses)
	}
	of := make(map[subject]*asks)
	asksOf := func(limit int16, key int32, node int16, by callers) *asks {
		s, l := subject{limit, key, j.Scenario.Nodes[node].Region, by}, &j.Scenario.Limits[limit]
		course, planet := r.courses[s.region], (*planet)(nil)
		if l.Scope == weir.Global {
			s.region, planet = everywhere, r.planet
		}
		if of[s] == nil {
			if by == ordinary {
				l = withoutKept(l)
			}
			of[s] = &asks{subject: s, l: l, course: course, planet: planet, checks: j.Checks}
		}
		return of[s]
	}
	for i := range j.Checks {
		c := &j.Checks[i]
		if c.Limit == witness {
			continue
		}
		all := []callers{allCallers, ordinary}
		if j.Scenario.Limits[c.Limit].Keep == 0 {
			all = all[:1]
		} else if c.Critical {
			all[1] = critical
		}
		for _, by := range all {
			a := asksOf(c.Limit, c.Key, c.Node, by)
			a.of = append(a.of, int32(i))
			if c.Allowed && c.Err == "" {
				a.admits = append(a.admits, int32(i))
			}
		}
	}
	for _, o := range j.Holds {
		a := asksOf(o.Limit, o.Key, o.Node, allCallers)
		a.holds = append(a.holds, o)
	}
	for _, a := range slices.SortedFunc(maps.Values(of), func(a, b *asks) int {
		return cmp.Or(cmp.Compare(a.limit, b.limit), cmp.Compare(a.key, b.key), cmp.Compare(a.region, b.region), cmp.Compare(a.callers, b.callers))
	}) {
		if inFlightLimit(*a.l) {
			slices.SortStableFunc(a.holds, func(a, b Held) int { return cmp.Compare(a.From, b.From) })
			r.flights = append(r.flights, a)
			continue
		}
		r.asks = append(r.asks, a)
		a.ends = slices.Clone(a.admits)
		slices.SortStableFunc(a.ends, func(x, y int32) int { return cmp.Compare(a.checks[x].Answered, a.checks[y].Answered) })
	}
	return r
}

func (a *asks) String() string {
	s := fmt.Sprintf("limit %q (%v, %d per %v, %v) key %d", a.l.Name, a.l.Algorithm, a.l.Rate, a.l.Per, a.l.Partition, a.key)
	s += [...]string{"", " by ordinary callers", " by critical callers"}[a.callers]
	switch a.region {
	case "":
	case everywhere:
		s += " " + everywhere
	default:
		s += " in " + a.region
	}
	return s
}

// checkBounds checks that the units in each window of Per do not exceed the bound of its
// situation. A healthy cluster has the lowest bound.
func checkBounds(r *trial, broken func(time.Duration, string, ...any)) {
	for _, a := range r.asks {
		var worst window
		var worstAllowed int64
		var row situation
		healthy := bounds.Healthy(a.l)
		a.eachWindow(a.l.Per, func(w window) {
			if w.units <= healthy {
				return
			}
			s := a.situation(w.from)
			if allowed := a.bound(s) + a.inFlight(w.from, w.to); w.units-allowed > worst.units-worstAllowed {
				worst, worstAllowed, row = w, allowed, s
			}
		})
		if worst.units > worstAllowed {
			broken(worst.to, "%v: %d units from %v to %v, %d allowed: L = %d, c = %d, %s",
				a, worst.units, worst.from, worst.to, worstAllowed, healthy, row.Changes, row.rowName())
		}
	}
}

// withoutKept returns a limit without the units that it keeps for critical callers.
func withoutKept(l *weir.Limit) *weir.Limit {
	o := *l
	if bounds.IsBucket(l) {
		o.Burst = bounds.Capacity(l) - l.Keep
	} else {
		o.Rate -= l.Keep
	}
	return &o
}

// checkKept checks the denials of critical checks. The count may include the admissions
// of the last recoveryTime. If a clock steps back, the count may include earlier
// admissions, so checkKept checks nothing.
func checkKept(r *trial, broken func(time.Duration, string, ...any)) {
	stepsBack := slices.ContainsFunc(r.Scenario.Faults, func(f Fault) bool { return f.Kind == FaultSkew && f.By < 0 })
	for _, a := range r.asks {
		if a.callers != critical || a.planet != nil || stepsBack {
			continue
		}
		for _, i := range a.of {
			c := &a.checks[i]
			from := c.Asked - recoveryTime(a.l, a.l.Rate)
			if c.Allowed || c.Banned > 0 || c.Err != "" || !a.course.isWhole(max(0, from), c.Answered) {
				continue
			}
			if spent := a.maxAdmitted(from, c.Answered); spent+c.Units <= a.l.Keep {
				broken(c.Answered, "%v: a check of %d units was denied at %v as %v, after %d units since %v, where %d are kept",
					a, c.Units, c.Asked, c.Source, spent, from, a.l.Keep)
				break
			}
		}
	}
}

// quiet is a span of time without events and without effects of earlier events.
type quiet struct {
	from, to time.Duration
	*era     // the era that contains the span
}

func (c *course) quiets() (all []quiet) {
	for i := range c.eras {
		e := &c.eras[i]
		q := quiet{e.from, e.to, e}
		for _, ev := range c.events {
			if ev.overlaps(q.from, q.to) {
				q.from = max(q.from, ev.to+1)
			}
		}
		if i > 0 && (c.eras[i-1].slow > 0 || c.eras[i-1].late || c.eras[i-1].unaware > 0 || c.eras[i-1].sides > 1 || c.eras[i-1].missing) {
			q.from = max(q.from, e.from+c.settle)
		}
		if q.from < q.to && e.slow == 0 && !e.late && e.unaware == 0 {
			all = append(all, q)
		}
	}
	return all
}

func checkAnyTime(r *trial, broken func(time.Duration, string, ...any)) {
	for _, a := range r.asks {
		if !bounds.IsBucket(a.l) || a.planet != nil {
			continue
		}
		for _, q := range a.course.quiets() {
			if q.sides != 1 && a.l.Partition != weir.FairShare && a.l.Partition != weir.FailClosed {
				continue
			}
			// Only an admission whose check was asked in the quiet was in the quiet for certain.
			if w, above := a.densestSpan(q.from, q.to); above > float64(bounds.Capacity(a.l))+1e-6 {
				broken(w.to, "%v: %d units from %v to %v, %.1f above its Rate, where Burst %d is allowed: %s",
					a, w.units, w.from, w.to, above, bounds.Capacity(a.l), situation{Situation: bounds.Situation{Sides: q.sides}}.rowName())
			}
		}
	}
}

// spreading is how long after a heal, once all nodes are connected again, the owner's
// count may lack admissions of the sides.
const spreading = 200 * time.Millisecond

// spreads is the number of pauses that may delay a spend. Both ends may be paused when
// the spend is sent, and before that, when the previous message is acknowledged.
const spreads = 4

// checkExact checks that no check is decided without the owner before the first fault other
// than slowness, while pauses are too short for timeouts. With real gossip, checkExact ignores the first seconds of a run, because the nodes
// have just started and the connections may report a member later than gossip.
func checkExact(r *trial, broken func(time.Duration, string, ...any)) {
	begin, end := time.Duration(0), never
	if r.Scenario.Gossip {
		begin = moving
	}
	for _, f := range r.Scenario.Faults {
		if f.Kind != FaultSlow {
			end = min(end, f.At)
		}
	}
	guessed := r.checksThat(func(c *Check) bool {
		switch c.Source {
		case weir.StandIn, weir.Budget, weir.FailedOpen, weir.FailedClosed:
			return c.Err == "" && c.Asked >= begin && c.Answered < end && r.courses[r.Scenario.Nodes[c.Node].Region].isWhole(c.Asked, c.Answered)
		}
		return false
	})
	if len(guessed) > 0 {
		first := guessed[0]
		broken(first.Answered, "%d checks were not decided by the member with authority; the first at %s, asked at %v, as %v",
			len(guessed), r.Scenario.Nodes[first.Node].Name, first.Asked, first.Source)
	}
}

func (r *trial) checksThat(wanted func(*Check) bool) (all []*Check) {
	for i := range r.Checks {
		if wanted(&r.Checks[i]) {
			all = append(all, &r.Checks[i])
		}
	}
	return all
}

// isWhole reports whether a span lies in a quiet in which no member is missing.
func (c *course) isWhole(from, to time.Duration) bool {
	return slices.ContainsFunc(c.quiets(), func(q quiet) bool {
		return from >= q.from && to < q.to && q.sides == 1 && !q.missing && !c.isBelowRoster(&q)
	})
}

// scheduling is the tolerance for the order of goroutines that run in the same instant of
// virtual time.
const scheduling = time.Millisecond

// checkPrompt checks how long checks took. A check may take Timeout. It may take twice Timeout if
// members may report scheduling delays, or open connections. The time in which the asking node
// was paused does not count.
func checkPrompt(r *trial, broken func(time.Duration, string, ...any)) {
	timeout, delays := timeoutOf(r.Scenario), r.Scenario.mayDelay()
	slow := r.checksThat(func(c *Check) bool {
		most := timeout
		if delays || r.isConnecting(c.Asked) {
			most *= 2
		}
		took := c.Answered - c.Asked - scheduling
		return took > most && took > most+r.pausesDuring(c, most)
	})
	if len(slow) > 0 {
		slowest := slices.MaxFunc(slow, func(a, b *Check) int { return cmp.Compare(a.Answered-a.Asked, b.Answered-b.Asked) })
		broken(slowest.Answered, "%d checks took longer than a Timeout of %v and reported delays; the slowest %v, at %s, asked at %v, answered as %v",
			len(slow), timeout, slowest.Answered-slowest.Asked, r.Scenario.Nodes[slowest.Node].Name, slowest.Asked, slowest.Source)
	}
}

// pausesDuring returns the longest total time for which the node of a check can have been
// paused, if the node ran for the given time besides.
func (r *trial) pausesDuring(c *Check, running time.Duration) (longest time.Duration) {
	node := r.Scenario.Nodes[c.Node]
	if r.courses[node.Region].longestPause(c.Asked, c.Answered, int(c.Node)) == 0 {
		return 0
	}
	for i := range r.Scenario.Faults {
		if f := &r.Scenario.Faults[i]; f.Kind == FaultSlow && f.Pauses > 0 && slices.Contains(f.Nodes, node.Name) {
			longest = max(longest, (running/(f.Every-f.Pauses)+1)*f.Pauses)
		}
	}
	return longest
}

// mayDelay reports whether a node may be delayed at any time: by a pause, a freeze, or a
// slow network. With real gossip, each new connection may be slow.
func (s *Scenario) mayDelay() bool {
	slow := func(f Fault) bool { return f.Kind == FaultSlow || f.Kind == FaultFreeze }
	return s.Gossip || slices.ContainsFunc(s.Faults, slow) || 2*(s.Network.Latency+s.Network.Jitter) >= detect.DelayTolerance
}

// isConnecting reports whether a node has begun to start or a split has healed less than
// two seconds before the time at. Members then open connections. The first round trip on a
// connection counts as a delay, which is long if a packet is lost or a link is slow.
func (r *trial) isConnecting(at time.Duration) bool {
	isFresh := func(from time.Duration) bool { return from <= at && at < from+2*time.Second }
	return slices.ContainsFunc(r.Starts, isFresh) || slices.ContainsFunc(r.Scenario.Faults, func(f Fault) bool {
		return f.Kind == FaultHeal && isFresh(f.At)
	})
}

func checkErrors(r *trial, broken func(time.Duration, string, ...any)) {
	if failed := r.checksThat(func(c *Check) bool { return c.Err != "" }); len(failed) > 0 {
		first := failed[0]
		broken(first.Answered, "%d checks had an error; the first at %s, asked at %v: %v", len(failed), r.Scenario.Nodes[first.Node].Name, first.Asked, first.Err)
	}
}

func checkSettled(r *trial, broken func(time.Duration, string, ...any)) {
	if r.Unsettled != "" {
		broken(r.Scenario.Lasts, "two minutes after all faults ended: %s", r.Unsettled)
	}
}

func checkAuthorities(r *trial, broken func(time.Duration, string, ...any)) {
	for _, e := range r.Ends {
		if len(e.Owners) == 1 {
			continue
		}
		var names []string
		for _, i := range e.Owners {
			names = append(names, r.Scenario.Nodes[i].Name)
		}
		broken(r.Scenario.Lasts, "key %d of the witness: %d nodes have authority: %v", e.Key, len(names), names)
	}
}

func checkReplicas(r *trial, broken func(time.Duration, string, ...any)) {
	for _, e := range r.Ends {
		if e.Replica >= 0 && !r.mayEvict() && (e.Replica < e.Used || e.Replica > e.Used+e.Regained) {
			broken(r.Scenario.Lasts, "key %d of the witness: the owner counted %d units, and its stand-in %d; a crash may have taken refunds of %d", e.Key, e.Used, e.Replica, e.Regained)
		}
	}
}

// mayEvict reports whether nodes may evict the counts of the witness limit. These counts
// use almost nothing of their limit, and begin again after an eviction.
func (r *trial) mayEvict() bool { return r.Scenario.MaxKeys > 0 }

func checkAccounts(r *trial, broken func(time.Duration, string, ...any)) {
	for _, e := range r.Ends {
		if e.Reset < e.Known {
			broken(r.Scenario.Lasts, "key %d of the witness: the owner knows of reset %d, but a living node knew of reset %d", e.Key, e.Reset, e.Known)
			continue
		}
		if least, most := e.Spent-e.Lost, e.Spent+e.Regained+e.Stale; !r.mayEvict() && (e.Used < least || e.Used > most) {
			broken(r.Scenario.Lasts, "key %d of the witness: %d units spent since reset %d, %d counted in the end, %d to %d allowed", e.Key, e.Spent, e.Reset, e.Used, least, most)
		}
		if e.Total < e.Granted || e.Total > e.Granted+e.Ungranted {
			broken(r.Scenario.Lasts, "key %d of the witness: %d units granted, %d spent; %d may have been spent without a grant", e.Key, e.Granted, e.Total, e.Ungranted)
		}
	}
}

// demand is the sum of the checks of a count in a span, at selected nodes.
type demand struct {
	offered, granted int64
	gap              time.Duration // longest time without a check, including the ends of the span
	largest          int64         // units of the largest check
	scarcest         int64         // requested units in the slot with the least demand; a Per has slotsInPer slots
}

const slotsInPer = 10

func (a *asks) demand(from, to time.Duration, asks func(node int16) bool) (d demand) {
	last := from
	slot := a.l.Per / slotsInPer
	slots := make([]int64, (to-from)/slot)
	for _, at := range a.askedSince(a.of, from) {
		c := &a.checks[at]
		if c.Asked >= to {
			break
		}
		if !asks(c.Node) {
			continue
		}
		d.gap = max(d.gap, c.Asked-last)
		last = c.Asked
		d.offered += c.Units
		d.largest = max(d.largest, c.Units)
		if at := int((c.Asked - from) / slot); at < len(slots) {
			slots[at] += c.Units
		}
		if c.Allowed {
			d.granted += c.Units
		}
	}
	d.gap = max(d.gap, to-last)
	d.scarcest = math.MaxInt64
	for _, units := range slots {
		d.scarcest = min(d.scarcest, units)
	}
	return d
}

// minGrants returns the number of units that a limit of this rate grants at least in a
// span, if checks of the same size ask for more than it can grant. With any algorithm,
// each unit comes back within a Per plus the longest gap between checks. A part of the
// first and of the last round may lie outside the span, and each round may leave less
// than a check.
func minGrants(l *weir.Limit, rate int64, span time.Duration, d demand) float64 {
	rounds := float64(span) / float64(l.Per)
	return float64(rate)*((1-float64(d.gap)/float64(l.Per))*rounds-2) - float64(d.largest)*rounds
}

// recoveryTime returns how long after an event a count may still be full of earlier
// admissions, if only this part of the limit flows back.
func recoveryTime(l *weir.Limit, part int64) time.Duration {
	if bounds.IsBucket(l) && part > 0 {
		return time.Duration(2 * float64(bounds.Capacity(l)) / float64(part) * float64(l.Per))
	}
	return 2 * l.Per
}

// isSaturated reports whether the checks asked, in each slot, for more units than the
// given rate grants. They must also come often enough that a bucket never overflows
// between two checks.
func (d demand) isSaturated(l *weir.Limit, rate, capacity int64) bool {
	if bounds.IsBucket(l) && float64(capacity-d.largest) < math.Ceil(float64(rate)/slotsInPer) {
		return false
	}
	return float64(d.scarcest) >= 1.3*float64(rate)/slotsInPer && d.scarcest < math.MaxInt64 && d.gap <= l.Per/slotsInPer
}

// isBelowRoster reports whether the number of nodes on sides is below the size of the
// roster or Expect. In that case a side has only the share of its policy.
func (c *course) isBelowRoster(q *quiet) bool {
	return q.roster > q.nodes()
}

// awaitsJoins reports whether fewer than Expect nodes on sides have points for certain.
// The other nodes started while members were missing. They join later, because no node
// joins while ranges are abandoned.
func (c *course) awaitsJoins(q *quiet) bool {
	return q.count(func(i int) bool { return q.side[i] >= 0 && q.weighs[i] }) < c.scenario.Expect
}

// checkShares checks the sides of each quiet in which a member is missing or the region is
// split, unless a member has left while the region was not calm. It also checks the quiet at the end of the run if
// all nodes of the roster run and are connected to each other.
func checkShares(r *trial, broken func(time.Duration, string, ...any)) {
	stepsBack := slices.ContainsFunc(r.Scenario.Faults, func(f Fault) bool { return f.Kind == FaultSkew && f.By < 0 })
	for _, a := range r.asks {
		if a.planet != nil {
			continue // see TestSaturatedRegionsAreGrantedNearlyAll of package sync
		}
		if stepsBack || a.l.Keep > 0 || a.l.Ban != (weir.Ban{}) || a.l.Pauses || r.Scenario.hasReservations(a.l.Name) {
			continue // after a step back, units do not recover until the clock reaches the time of the step
		}
		for _, q := range a.course.quiets() {
			whole := q.sides == 1 && !q.missing && !a.course.isBelowRoster(&q)
			if whole && q.to != a.course.end() || !whole && q.leftApart {
				continue
			}
			for side := range q.sides {
				k := q.count(func(i int) bool { return q.side[i] == side && q.weighs[i] })
				from, part, depth := q.from, a.l.Rate, bounds.Capacity(a.l)
				if !whole {
					part, depth = minShare(a.l, k, q.roster)
				} else if a.course.awaitsJoins(&q) {
					from += moving + settling
				}
				from, to := from+recoveryTime(a.l, part), min(q.to, r.Scenario.Lasts)
				if part <= 0 || to-from < 2*a.l.Per {
					continue
				}
				d := a.demand(from, to, func(node int16) bool { return q.side[node] == side })
				least := 0.95*minGrants(a.l, part, to-from, d) - float64(k)
				if d.isSaturated(a.l, part, depth) && float64(d.granted) < least {
					broken(to, "%v: %d units from %v to %v on a side of %d of %d, where %d were asked for and %.0f are due: its share is %d",
						a, d.granted, from, to, k, q.roster, d.offered, least, part)
				}
			}
		}
	}
}

// minShare returns the units of Rate and of the capacity that a side of k of n members
// may spend at least. The result follows the guarantees table; for FairShare it is the
// smallest share that ring order can give to k members. If the share of the capacity is
// 0, the side may spend no units.
func minShare(l *weir.Limit, k, n int) (rate, most int64) {
	part := func(whole int64) int64 {
		switch {
		case l.Partition == weir.FailOpen || l.Partition != weir.FairShare && 2*k > n:
			return whole
		case l.Partition == weir.FailClosed:
			return 0
		case l.Partition == weir.FairShare:
			return int64(k) * (whole / int64(n))
		}
		return whole * int64(k) / int64(n)
	}
	if k == 0 || part(bounds.Capacity(l)) == 0 {
		return 0, 0
	}
	return part(l.Rate), part(bounds.Capacity(l))
}
