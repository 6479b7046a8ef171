package main

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/cluster/detect"
	"github.com/weir-go/weir/weirtest"
)

const (
	// settling is how long a change of connectivity has effects: members find within a
	// second that a member is disconnected, and pass the news on.
	settling = 2 * time.Second
	// gossipSettling is how long real memberlist and real connections need after a heal
	// until all nodes are connected again.
	gossipSettling = 10 * time.Second
	// moving is the maximum time until authority has moved after a start or an orderly
	// leave: a hand-over has 10 s, and a waiting member has 5 s more.
	moving = 15 * time.Second
	// copying is the time until the counts of a dead member are copied again: a second
	// until the member is missing, and a scan.
	copying = 3 * time.Second
)

// course describes the connections between the nodes of a region over time. A course
// depends only on the scenario, and not on the nodes that are judged.
type course struct {
	scenario *Scenario
	members  []int // indices in Scenario.Nodes of the nodes of the region
	eras     []era // consecutive, from 0 to the end
	events   []event
	torn     []span        // when two regions are separated: see world.areRegionsApart
	settle   time.Duration // how long a heal has effects
}

// era is the time between two faults: no node starts or ends, and no link changes.
type era struct {
	from, to  time.Duration
	side      []int // side of each node of the scenario, or -1 if the node is on no side
	sides     int
	roster    int  // number of hosts that have started and not left, or Expect if that is more; the n of the guarantees
	leftApart bool // a member left while the region was not calm: a side that has not heard of the leave still counts the member
	missing   bool // a member of the roster is on no side
	mute      bool // a missing member runs, but cannot report its present and earlier admissions
	// unaware is how many sides may assume that they are whole although other members
	// live. Such a side has met none of these members, or may forget some of them before
	// the era ends.
	unaware  int
	weighs   []bool          // whether each node has points for certain
	partial  bool            // two running nodes are not directly connected to each other, or a member is missing and a running node may not have received its counts
	slow     int             // number of nodes with a link on which checks may time out
	hears    [][]bool        // indexed by two nodes: the first is connected to the second for certain
	pauses   []time.Duration // length of each node's pauses
	trips    []time.Duration // for each node, the longest round trip to another node, without pauses
	late     bool            // pauses are so long that checks may time out
	strained bool            // pauses are so long that a check may time out if it has first waited for a member that did not answer
}

// kind is the condition, in the table of docs/guarantees.md, that an event causes.
type kind uint8

const (
	changed  kind = iota // a link changes, a node starts or leaves while the region is not calm, or a member ends or freezes that was the only path between other members; the c of docs/guarantees.md counts these
	killed               // an owner crashes
	moved                // a node joins, or leaves in order
	timedOut             // a node freezes or thaws, so that checks time out although the member with authority lives
	stepped              // a clock steps forward
)

// event affects each window that overlaps the span between the times from and to,
// including both ends.
type event struct {
	kind     kind
	from, to time.Duration
	node     int           // -1 for an event of links
	by       time.Duration // length of the step of a clock
	fresh    bool          // for a kill: possibly no other member has the counts of the node
	alone    bool          // for a leave: possibly the node reaches no member to hand over to, and decides alone
	spell    int           // number of the freeze: the events of a freeze have the same number
	region   bool          // the event ends all nodes of the region, or starts nodes while no node of the region runs
}

func (e *event) overlaps(from, to time.Duration) bool { return e.from < to && e.to >= from }

// world is the state that faults change.
type world struct {
	*course
	runs, frozen, left, begun []bool
	cut                       [][]bool
	link                      [][]weirtest.Link
	known                     [][]bool          // the nodes that each node has met
	leftApart                 bool              // a member has left while the region was not calm, and since then not all members have met
	weighs                    []bool            // whether each node has points for certain
	lost                      [][]time.Duration // indexed by two nodes: the time since which the second runs, but not on the side of the first, or -1
	spells                    []int             // number of freezes of each node
	pauses                    []time.Duration   // length of each node's pauses
	leftAt                    []time.Duration   // when each node began to leave; 0 if it has not left since it started
}

// courseOf computes the course of a region from the faults. The course ends after the time end.
func courseOf(s *Scenario, region string, end time.Duration) *course {
	c := &course{scenario: s, settle: settling}
	if s.Gossip {
		c.settle = gossipSettling
	}
	n := len(s.Nodes)
	w := &world{course: c, pauses: make([]time.Duration, n), leftAt: make([]time.Duration, n)}
	for _, b := range []*[]bool{&w.runs, &w.frozen, &w.left, &w.begun, &w.weighs} {
		*b = make([]bool, n)
	}
	w.spells = make([]int, n)
	for i, node := range s.Nodes {
		w.cut = append(w.cut, make([]bool, n))
		w.link = append(w.link, slices.Repeat([]weirtest.Link{s.Network}, n))
		w.known = append(w.known, make([]bool, n))
		w.lost = append(w.lost, slices.Repeat([]time.Duration{-1}, n))
		if node.Region != region {
			continue
		}
		c.members = append(c.members, i)
		if !node.Later {
			w.runs[i], w.begun[i], w.weighs[i] = true, true, true
		}
	}
	for _, i := range c.members {
		for _, j := range c.members {
			w.known[i][j] = w.runs[i] && w.runs[j]
		}
	}
	faults, at := s.Faults, time.Duration(0)
	for i := 0; i < len(faults); {
		next := i
		for next < len(faults) && faults[next].At == faults[i].At {
			next++
		}
		if faults[i].At > at {
			w.addEra(at, faults[i].At)
			at = faults[i].At
		}
		w.strike(at, faults[i:next])
		i = next
	}
	w.addEra(at, max(end, at)+1)
	for i := range c.events {
		if e := &c.events[i]; e.kind == changed {
			e.to += s.extraNoticeTime(c.longestPause(e.from, e.to, c.members...))
		}
	}
	return c
}

// extraNoticeTime bounds the additional time that a paused node needs to find a silent
// member missing. The argument is the maximum length of its pauses.
func (s *Scenario) extraNoticeTime(pause time.Duration) (longest time.Duration) {
	for i := range s.Faults {
		if f := &s.Faults[i]; f.Kind == FaultSlow && f.Pauses > 0 && f.Pauses <= pause {
			longest = max(longest, noticeTime(f.Pauses, f.Every)-time.Second)
		}
	}
	return longest
}

// noticeTime bounds the time in which a node that is paused periodically finds a silent
// member missing. The time between two checks for silence is 100 ms and the pauses in
// between. The node counts only 120 ms of this time, because it did not run for the rest.
// The member is missing after 800 ms, plus the length of a pause but at most a second.
// The last check must not be late.
func noticeTime(pause, every time.Duration) time.Duration {
	const plan, silent = 100 * time.Millisecond, 800 * time.Millisecond
	if pause < detect.DelayTolerance {
		return time.Second
	}
	limit := silent + min(pause, time.Second)
	looks := limit/(plan+detect.DelayTolerance) + 2 // rounded up, and one more check
	most := looks * (plan + pause)                  // with one pause between two checks
	in := limit + 2*plan + pause
	for pauses := time.Duration(1); in < most && in > pauses*every; pauses++ {
		in += pause
	}
	return min(in, most)
}

func roundTrip(there, back weirtest.Link) time.Duration {
	return there.Latency + there.Jitter + back.Latency + back.Jitter + 2*time.Microsecond
}

// indices returns the indices of the nodes of this region that have these names.
func (w *world) indices(names []string) (in []int) {
	for _, name := range names {
		i := slices.IndexFunc(w.scenario.Nodes, func(n Node) bool { return n.Name == name })
		if slices.Contains(w.members, i) {
			in = append(in, i)
		}
	}
	return in
}

// strike applies the faults of a moment.
func (w *world) strike(at time.Duration, faults []Fault) {
	before := w.edges()
	calm := w.isCalm(at)
	heals, cuts := false, false
	for _, f := range faults {
		switch f.Kind {
		case FaultHeal:
			for i := range w.cut {
				clear(w.cut[i])
				for j := range w.link[i] {
					w.link[i][j] = w.scenario.Network
				}
			}
			heals = true
		case FaultSplit, FaultCut, FaultLink:
			for i, j := range w.scenario.between(&f) {
				if f.Kind == FaultLink {
					w.link[i][j] = f.Link
				} else {
					w.cut[i][j], cuts = true, true
				}
			}
		}
	}
	for i := range w.events {
		e := &w.events[i]
		e.alone = e.alone || cuts && e.kind == moved && w.left[max(0, e.node)] && at <= e.from+settling
	}
	if !slices.EqualFunc(before, w.edges(), slices.Equal[[]bool]) {
		settle := settling
		if heals {
			settle = w.settle
		}
		// Each side that appears or disappears may spend the whole limit until
		// the members have noticed the change.
		_, was := sidesOf(before)
		_, is := sidesOf(w.edges())
		for range max(1, is-was, was-is) {
			w.events = append(w.events, event{kind: changed, from: at, to: at + settle, node: -1})
		}
	}
	nobody := !slices.Contains(w.runs, true)
	linked, lasts := w.edges(), settling
	for _, f := range faults {
		for _, i := range w.indices(f.Nodes) {
			w.apply(at, f, i, calm)
		}
		if f.Kind == FaultLeave {
			lasts = moving // the node ends after its hand-over
		}
	}
	for range w.addedSides(linked) {
		w.events = append(w.events, event{kind: changed, from: at, to: at + lasts, node: -1})
	}
	if nobody || !slices.Contains(w.runs, true) {
		for i := range w.events {
			w.events[i].region = w.events[i].region || w.events[i].from == at
		}
	}
}

// addedSides returns the number of additional sides. A side is added when a member ends
// or freezes that was the only path between other members. The argument before is an
// earlier result of edges. Nodes that have started or become slower do not count.
func (w *world) addedSides(before [][]bool) int {
	now := w.edges()
	rest := relation(len(before), func(i, j int) bool { return before[i][j] && now[i][i] && now[j][j] })
	was, _ := sidesOf(before)
	is, sides := sidesOf(rest)
	stay := make(map[int]bool)
	for _, i := range w.members {
		if is[i] >= 0 {
			stay[was[i]] = true
		}
	}
	return sides - len(stay)
}

// apply records the effects of a fault on a node. If the region is not calm, a node that
// starts or leaves also changes connectivity, because there may be no member that sends
// counts or takes over.
func (w *world) apply(at time.Duration, f Fault, i int, calm bool) {
	add := func(k kind, lasts time.Duration) *event {
		w.events = append(w.events, event{kind: k, from: at, to: at + lasts, node: i})
		return &w.events[len(w.events)-1]
	}
	switch f.Kind {
	case FaultKill:
		if !w.runs[i] && !(w.leftAt[i] > 0 && at < w.leftAt[i]+moving) {
			w.frozen[i] = false
			return
		}
		add(killed, settling).fresh = w.losesCounts(at, i)
		w.runs[i], w.frozen[i] = false, false
		w.leftAt[i] = 0
	case FaultStart:
		if w.runs[i] {
			return
		}
		w.runs[i], w.left[i], w.begun[i], w.weighs[i] = true, false, true, false
		w.leftAt[i] = 0
		clear(w.known[i])
		w.known[i][i] = true
		for j := range w.lost {
			w.lost[i][j], w.lost[j][i] = -1, -1
		}
		add(moved, moving)
		if !calm {
			add(changed, settling)
		}
	case FaultLeave:
		if !w.runs[i] {
			return
		}
		// A node that reaches no member that can take over does not announce a leave.
		side, _ := sidesOf(w.edges())
		w.left[i] = slices.ContainsFunc(w.members, func(j int) bool { return j != i && w.weighs[j] && side[i] >= 0 && side[j] == side[i] })
		w.runs[i], w.leftAt[i] = false, at
		add(moved, moving).alone = !calm
		w.leftApart = w.leftApart || !calm
		if !calm {
			add(changed, settling)
		}
	case FaultFreeze:
		if w.frozen[i] {
			return
		}
		w.frozen[i] = true
		w.spells[i]++
		add(timedOut, settling).spell = w.spells[i]
	case FaultThaw:
		if !w.frozen[i] {
			return
		}
		w.frozen[i] = false
		add(timedOut, w.settle).spell = w.spells[i]
	case FaultSkew:
		if f.By > 0 {
			add(stepped, 0).by = f.By
		}
	case FaultSlow:
		w.pauses[i] = f.Pauses
	}
}

// losesCounts reports whether the counts of a member are lost if it dies now: there are no
// replicas, the member is frozen or alone on its side, or copies may be incomplete because
// another node ended, froze or thawed or a link changed shortly before.
func (w *world) losesCounts(at time.Duration, i int) bool {
	edges := w.edges()
	return w.scenario.Replicas < 0 || w.frozen[i] ||
		!slices.ContainsFunc(w.members, func(j int) bool { return j != i && edges[i][j] }) ||
		slices.ContainsFunc(w.events, func(e event) bool {
			takes := e.kind == changed || e.kind == killed || e.kind == timedOut || e.kind == moved && w.left[e.node]
			return e.node != i && takes && e.from > at-copying && e.from <= at
		})
}

// isCalm reports whether all members of the roster are on the same side, and no earlier event
// still has effects, apart from starts, leaves in order and clock steps.
func (w *world) isCalm(at time.Duration) bool {
	side, sides := sidesOf(w.edges())
	isFelt := func(e event) bool { return e.kind != moved && e.kind != stepped && e.to >= at }
	isMissing := func(i int) bool { return w.begun[i] && !w.left[i] && side[i] < 0 }
	return sides <= 1 && !slices.ContainsFunc(w.events, isFelt) && !slices.ContainsFunc(w.members, isMissing)
}

// disconnectingTrip is the round-trip time, pauses included, at which two nodes become
// disconnected: the next ping is sent at most 330 ms after the last ping, and a member is
// disconnected after 800 ms without an answer.
const disconnectingTrip = 450 * time.Millisecond

// pauseDelay returns how much longer a round trip takes because its ends are paused.
// After a pause, a simulated member handles the timers that were due and all messages
// that arrived, like a process. With real gossip, a pause does not stop the timers.
func (w *world) pauseDelay(i, j int) time.Duration {
	if w.scenario.Gossip {
		return w.pauses[i] + w.pauses[j]
	}
	return max(w.pauses[i], w.pauses[j])
}

func (c *course) longestPause(from, to time.Duration, nodes ...int) (longest time.Duration) {
	for i := range c.eras {
		if e := &c.eras[i]; e.from < to && e.to > from {
			for _, n := range nodes {
				longest = max(longest, e.pauses[n])
			}
		}
	}
	return longest
}

// edges reports for each pair of nodes whether they are connected to each other: both
// nodes run, neither is frozen, the link between them is up in both directions, and a
// round trip takes less than disconnectingTrip.
func (w *world) edges() [][]bool {
	return relation(len(w.runs), func(i, j int) bool {
		return w.runs[i] && w.runs[j] && !w.frozen[i] && !w.frozen[j] &&
			(i == j || !w.cut[i][j] && !w.cut[j][i] && roundTrip(w.link[i][j], w.link[j][i])+w.pauseDelay(i, j) < disconnectingTrip)
	})
}

// areRegionsApart reports whether there are two regions such that no node of the first
// can send to a node of the second.
func (w *world) areRegionsApart() bool {
	up := make(map[[2]string]bool)
	for i, a := range w.scenario.Nodes {
		for j, b := range w.scenario.Nodes {
			if way := [2]string{a.Region, b.Region}; a.Region != b.Region {
				up[way] = up[way] || !w.cut[i][j]
			}
		}
	}
	return slices.Contains(slices.Collect(maps.Values(up)), false)
}

// relation returns the matrix of a relation between n elements.
func relation(n int, holds func(i, j int) bool) [][]bool {
	all := make([][]bool, n)
	for i := range all {
		all[i] = make([]bool, n)
		for j := range all[i] {
			all[i][j] = holds(i, j)
		}
	}
	return all
}

// sidesOf returns the component of each node in the graph of edges, and the number of
// components. The component of a node that is not connected to itself is -1.
func sidesOf(edges [][]bool) (side []int, sides int) {
	side = slices.Repeat([]int{-1}, len(edges))
	for i := range edges {
		if !edges[i][i] || side[i] >= 0 {
			continue
		}
		for j, hops := range pathLengths(edges, i) {
			if hops >= 0 {
				side[j] = sides
			}
		}
		sides++
	}
	return side, sides
}

func (w *world) addEra(from, to time.Duration) {
	edges := w.edges()
	e := era{
		from: from, to: to, weighs: slices.Clone(w.weighs),
		pauses: slices.Clone(w.pauses), trips: make([]time.Duration, len(edges)),
		hears: relation(len(edges), func(i, j int) bool { return edges[i][j] && w.link[i][j].Loss == 0 && w.link[j][i].Loss == 0 }),
	}
	e.side, e.sides = sidesOf(edges)
	if w.areRegionsApart() {
		w.torn = append(w.torn, span{from, to})
	}
	for _, i := range w.members {
		if w.begun[i] && !w.left[i] {
			e.roster++
			e.missing = e.missing || e.side[i] < 0
			e.mute = e.mute || e.side[i] < 0 && w.runs[i]
		}
	}
	e.roster = max(e.roster, w.scenario.Expect)
	for _, i := range w.members {
		e.partial = e.partial || w.runs[i] && (e.missing && !w.weighs[i] ||
			slices.ContainsFunc(w.members, func(j int) bool { return w.runs[j] && !edges[i][j] }))
	}
	e.leftApart = w.leftApart
	w.leftApart = w.leftApart && (e.sides > 1 || e.missing)
	w.measureLinks(&e, edges)
	w.forget(&e)
	meet := settling
	if w.scenario.Gossip {
		meet = 20 * time.Second
	}
	if to-from >= meet {
		w.meet(e.side)
	}
	if e.sides <= 1 && !e.missing && to-from >= moving {
		for _, i := range w.members {
			w.weighs[i] = w.runs[i]
		}
	}
	w.eras = append(w.eras, e)
}

// forget sets e.unaware to the number of sides that may forget a living member of another
// side during this era, or have met no running member of another side. Whether such a
// member has points is then uncertain, because it joins again when it returns.
func (w *world) forget(e *era) {
	forget, ignorant := cmp.Or(w.scenario.Forget, defaultForget), make(map[int]bool)
	for _, i := range w.members {
		if e.side[i] < 0 {
			continue
		}
		for _, j := range w.members {
			if !w.runs[j] || e.side[j] == e.side[i] {
				w.lost[i][j] = -1
				continue
			}
			if w.lost[i][j] < 0 {
				w.lost[i][j] = e.from
			}
			if w.lost[i][j]+forget < e.to || !w.knowsMissing(e.side, i) {
				w.weighs[j] = false
				ignorant[e.side[i]] = ignorant[e.side[i]] || !w.frozen[j]
			}
		}
	}
	for _, is := range ignorant {
		if is {
			e.unaware++
		}
	}
}

// knowsMissing reports whether a node on the side of node i has met a running node that
// is not on this side. In that case the side knows that a member is missing. So the side
// has only its share, and a node that joins this side has no points. A node that the side
// has not met has joined other members meanwhile. There, this node has no points either,
// unless those members, too, know of no missing member.
func (w *world) knowsMissing(side []int, i int) bool {
	return slices.ContainsFunc(w.members, func(k int) bool {
		return side[k] == side[i] && slices.ContainsFunc(w.members, func(j int) bool {
			return side[j] != side[i] && w.runs[j] && w.known[k][j]
		})
	})
}

// meet makes all nodes of a side know each node that any of them knows.
func (w *world) meet(side []int) {
	for _, i := range w.members {
		for _, j := range w.members {
			if side[i] < 0 || side[i] != side[j] {
				continue
			}
			for k := range w.known[j] {
				w.known[i][k] = w.known[i][k] || w.known[j][k]
				w.known[j][k] = w.known[i][k]
			}
		}
	}
}

// measureLinks computes the longest round trip of each node, and where checks may time
// out: on links that are lossy or too slow, and beside members that pause for too long.
func (w *world) measureLinks(e *era, edges [][]bool) {
	// A check waits for an owner for three quarters of Timeout, for a stand-in for half,
	// and for a member that is asked after another member for the last quarter.
	hops, quarters := time.Duration(max(1, diameter(edges))), time.Duration(3)
	if e.sides > 1 || e.missing {
		quarters = 2
	}
	if hops > 1 {
		quarters = 1
	}
	timeout, paused := timeoutOf(w.scenario), time.Duration(0) // the longest round trip with a pause
	for _, i := range w.members {
		isSlow := false
		for _, j := range w.members {
			if i == j || !w.runs[j] || w.cut[i][j] || w.cut[j][i] {
				continue
			}
			there, back := w.link[i][j], w.link[j][i]
			trip, pause := roundTrip(there, back), w.pauseDelay(i, j)
			e.trips[i] = max(e.trips[i], trip)
			isSlow = isSlow || w.runs[i] && (there.Loss > 0 || back.Loss > 0 || 4*hops*trip >= timeout)
			if edges[i][j] && pause > 0 {
				paused = max(paused, trip+pause)
			}
		}
		if isSlow {
			e.slow++
		}
	}
	e.late = paused > 0 && 4*hops*paused >= quarters*timeout
	e.strained = paused > 0 && 4*hops*paused >= timeout
}

func timeoutOf(s *Scenario) time.Duration {
	return cmp.Or(s.Timeout, defaultTimeout)
}

// nodes returns how many nodes are on some side.
func (e *era) nodes() int { return e.count(func(i int) bool { return e.side[i] >= 0 }) }

func (e *era) count(wanted func(i int) bool) (n int) {
	for i := range e.side {
		if wanted(i) {
			n++
		}
	}
	return n
}

// disturbedSpans returns the spans in which messages may be lost or late, or in which a
// node that ends may have spent units without a grant.
func (c *course) disturbedSpans() (spans []span) {
	for _, e := range c.events {
		if e.kind != moved && e.kind != stepped {
			spans = append(spans, span{e.from, e.to})
		}
	}
	for i := range c.eras {
		e := &c.eras[i]
		if e.sides != 1 || e.missing || e.slow > 0 || slices.Max(e.pauses) > 0 {
			spans = append(spans, span{e.from, e.to + c.settle})
		}
	}
	return spans
}

// longestWait returns the longest time that a node waits for the answer of a connected
// node.
func (c *course) longestWait(e *era) (longest time.Duration) {
	for _, i := range c.members {
		longest = max(longest, e.trips[i]+2*c.longestPause(e.from, e.to, c.members...))
	}
	return longest
}

// diameter returns the maximum length of the shortest paths between connected nodes.
func diameter(edges [][]bool) (hops int) {
	for i := range edges {
		hops = max(hops, slices.Max(pathLengths(edges, i)))
	}
	return hops
}

// pathLengths returns the lengths of the shortest paths from a node, or -1 without a path.
func pathLengths(edges [][]bool, from int) []int {
	hops := slices.Repeat([]int{-1}, len(edges))
	hops[from] = 0
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		for j, up := range edges[queue[0]] {
			if up && hops[j] < 0 {
				hops[j] = hops[queue[0]] + 1
				queue = append(queue, j)
			}
		}
	}
	return hops
}

func (c *course) eraAt(t time.Duration) *era {
	i, found := slices.BinarySearchFunc(c.eras, t, func(e era, t time.Duration) int { return cmp.Compare(e.from, t) })
	if !found {
		i--
	}
	return &c.eras[min(max(i, 0), len(c.eras)-1)]
}

// rank returns the index of the side of a node if the sides are sorted by the number of
// their nodes, the largest first. If sides have equal sizes, the side with the first node
// comes first. The rank of a node on no side, which is about to leave or freeze, is 0.
func (e *era) rank(node int) int {
	if e.side[node] < 0 {
		return 0
	}
	order := make([]int, e.sides)
	for i := range order {
		order[i] = i
	}
	sizes := make([]int, e.sides)
	for _, side := range e.side {
		if side >= 0 {
			sizes[side]++
		}
	}
	slices.SortStableFunc(order, func(x, y int) int { return sizes[y] - sizes[x] })
	return slices.Index(order, e.side[node])
}
