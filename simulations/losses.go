package main

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

// What crashes may take with them. A count is at its authority and at Replicas
// other nodes of its side, at most 100 ms old. So what a crash takes is
//   - what the node admitted in the last 100 ms, or where packets are lost since a
//     ping for each hop that copies go, and on the way, as long as its side has a
//     survivor and no more than Replicas crash before the survivors have made new
//     copies; where it was cut off from others in the last 2 s, or a link of it went
//     down, or one that its copies go through, since then, as these may have had the
//     copies;
//   - with a side that dies out, what it admitted since it was cut off, or since
//     it was cut off from others in the 2 s before; so, too, where it dies out so
//     soon after a heal, or a thaw, that it may have told the others nothing yet;
//   - where more died than there were replicas, anything; so, too, where those with
//     the copies were apart, and each side died out. A node that freezes
//     then counts as one of them: another stands in, and when it thaws it takes
//     the other's counts for its own.
//
// What is asked of several, because the first did not answer in time, may be
// granted by each: the others' grants are given back when they arrive, unless a
// fault has it that they do not.
const (
	replicaAge = 100 * time.Millisecond // at most, of what is acknowledged
	recopied   = 3 * time.Second        // after a crash there are Replicas again
	noticed    = 2 * time.Second        // after a cut others have the copies that were beyond it
	resends    = 3 * 200 * time.Millisecond
	pingPace   = 300 * time.Millisecond
)

// ledger is what is known of the witness's units.
type ledger struct {
	mu      sync.Mutex // guards spends, which nodes tell of under locks of their own
	keys    map[[16]byte]int
	spends  [][]spent         // of each key, as they were
	granted []int64           // units of each key, to callers
	resets  []uint64          // of each key, the highest number that a node has known
	since   []int64           // of each key, granted under that number and not given back yet
	stale   [][]stale         // of each key
	knows   map[knower]uint64 // the number that each host's node has known last
	asks    [][]ask           // of each key
	crashes []crash
	breaks  []time.Duration // when connections broke
	slow    time.Duration   // a check that takes longer may have been asked of several
	link    weirtest.Link   // the slowest there has been
	pause   time.Duration   // the longest there has been
}

// spent is units that a host's node has spent, or below zero given back.
type spent struct {
	units int64
	at    time.Duration
	by    int
	alone bool // it decided on its own, and has to tell the owner
	// reset is the number of the last reset that it knew of. Where no units are spent it
	// is one that it has just heard of.
	reset uint64
}

// stale is units that callers gave back though they were granted before a reset: nodes
// take them from what was spent since, and several that are apart may each take the same.
type stale struct {
	units int64
	reset uint64 // the highest number that was known then
}

type knower struct{ host, key int }

func newLedger(keys int) ledger {
	return ledger{
		spends: make([][]spent, keys), granted: make([]int64, keys), asks: make([][]ask, keys),
		resets: make([]uint64, keys), since: make([]int64, keys), stale: make([][]stale, keys),
		knows: make(map[knower]uint64),
	}
}

// observe takes down what a node has spent of a count, and under which reset.
func (l *ledger) observe(id [16]byte, reset uint64, units int64, at time.Duration, by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, ok := l.keys[id]
	if !ok {
		return
	}
	l.spends[k] = append(l.spends[k], spent{units: units, at: at, by: by, reset: reset})
	l.knows[knower{by, k}] = reset
	if reset > l.resets[k] {
		l.resets[k], l.since[k] = reset, 0
	}
}

// starts has a host's next node know of no reset.
func (l *ledger) starts(host int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.spends {
		delete(l.knows, knower{host, k})
	}
}

// crash is nodes that ended at one moment with what they knew.
type crash struct {
	at    time.Duration
	hosts []int
	// heldSince is when the first of them froze, at if none was: it has told
	// nobody anything from then on.
	heldSince time.Duration
	orderly   bool          // it has handed over, as far as there was anybody
	began     time.Duration // when it began to, at if it did not
}

// note takes down a check of the witness.
func (l *ledger) note(c Check, killed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slow := c.Answered-c.Asked >= l.slow || l.crashed(c.Asked, c.Answered) || l.broke(c.Asked, c.Answered)
	l.asks[c.Key] = append(l.asks[c.Key], ask{
		units: c.Units, from: c.Asked, to: c.Answered,
		done: !killed && c.Err == nil && c.Allowed, unsure: killed || c.Err != nil || slow, leased: c.Source == weir.Leased,
	})
	if !killed && c.Err == nil && c.Allowed {
		l.granted[c.Key] += c.Units
		if !l.before(c) {
			l.since[c.Key] += c.Units
		}
		if c.Source == weir.Budget || c.Source == weir.FailedOpen {
			for i := range slices.Backward(l.spends[c.Key]) {
				if s := &l.spends[c.Key][i]; s.by == int(c.Node) && s.units == c.Units && s.at >= c.Asked {
					s.alone = true
					break
				}
			}
		}
	}
}

// before reports whether what a check was granted may have been spent before a reset that
// is known by now, or by a node that did not know of it.
func (l *ledger) before(c Check) bool {
	for _, s := range slices.Backward(l.spends[c.Key]) {
		if s.at < c.Asked {
			return false
		}
		if s.units == c.Units && s.reset < l.resets[c.Key] {
			return true
		}
	}
	return false
}

// mayReturn reports whether callers were granted so many units of a key, and takes them from
// what they have. A node that has not heard of all of these gives back less. reset is the
// highest number that is known by then, for returned.
func (l *ledger) mayReturn(key int, units int64) (reset uint64, may bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	reset = l.resets[key]
	if l.granted[key] < units {
		return reset, false
	}
	l.granted[key] -= units
	if l.since[key] < units {
		l.stale[key] = append(l.stale[key], stale{units, reset})
	} else {
		l.since[key] -= units
	}
	return reset, true
}

// returned takes down a refund, whatever came of it, which was begun under a reset number.
func (l *ledger) returned(key int, units int64, reset uint64, from, to time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asks[key] = append(l.asks[key], ask{units: -units, from: from, to: to})
	if now := l.resets[key]; now > reset {
		l.stale[key] = append(l.stale[key], stale{units, now})
	}
}

// crashed reports whether a node died in that time: what it had been asked, and has passed
// on, it can have given back by nobody.
func (l *ledger) crashed(from, to time.Duration) bool {
	return slices.ContainsFunc(l.crashes, func(c crash) bool { return !c.orderly && c.at >= from && c.at <= to })
}

// broke reports whether connections broke in that time: the answer that says what is to be
// given back may be lost with one.
func (l *ledger) broke(from, to time.Duration) bool {
	return slices.ContainsFunc(l.breaks, func(at time.Duration) bool { return at >= from && at <= to })
}

// breakOff notes that connections break.
func (l *ledger) breakOff(at time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breaks = append(l.breaks, at)
}

func (l *ledger) crash(at time.Duration, died []int, hosts []*host) {
	if len(died) == 0 {
		return
	}
	c := crash{at: at, hosts: died, heldSince: at, began: at}
	for _, i := range died {
		if hosts[i].frozen {
			c.heldSince = min(c.heldSince, hosts[i].since)
		}
	}
	l.crashes = append(l.crashes, c)
}

// left is a crash if there was nobody to hand over to, or too little time.
func (l *ledger) left(began, at time.Duration, h int, unfinished bool, hosts []*host) {
	l.crash(at, []int{h}, hosts)
	c := &l.crashes[len(l.crashes)-1]
	c.orderly, c.began = !unfinished, began
}

// leaves reports whether a host's node leaves in good order at a moment.
func (l *ledger) leaves(h int, at time.Duration) bool {
	return slices.ContainsFunc(l.crashes, func(c crash) bool {
		return c.orderly && c.began <= at && at <= c.at && slices.Contains(c.hosts, h)
	})
}

func (l *ledger) slowest(link weirtest.Link) {
	l.link.Latency = max(l.link.Latency, link.Latency)
	l.link.Jitter = max(l.link.Jitter, link.Jitter)
	l.link.Loss = max(l.link.Loss, link.Loss)
}

// sides is which nodes hear each other, directly or through others, from a
// moment on.
type sides struct {
	since time.Duration
	of    []int           // each host's side, or one of those below
	cut   map[[2]int]bool // the links that are down
}

const (
	absent = -1 // no node runs there
	hangs  = -2 // it is frozen
)

// remember takes down who hears whom from now on.
func (s *stage) remember(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lives := func(h *host) bool { return h.runs != nil && !h.frozen }
	side, _ := sidesOf(relation(len(s.hosts), func(i, j int) bool {
		a, b := s.hosts[i], s.hosts[j]
		return lives(a) && lives(b) && a.region == b.region && !s.links[[2]int{i, j}] && !s.links[[2]int{j, i}]
	}))
	of := make([]int, len(s.hosts))
	for i, h := range s.hosts {
		switch {
		case side[i] >= 0:
			of[i] = slices.Index(side, side[i]) // its first host names a side, whatever becomes of others
		case h.runs != nil:
			of[i] = hangs
		default:
			of[i] = absent
		}
	}
	s.past = append(s.past, sides{now, of, maps.Clone(s.links)})
}

// gone reports of each spend of each key whether crashes may have taken it.
func (s *stage) gone() (gone [][]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.witness.slowest(s.Network)
	gone = make([][]bool, len(s.witness.spends))
	for k := range gone {
		gone[k] = make([]bool, len(s.witness.spends[k]))
	}
	for i, c := range s.witness.crashes {
		for _, h := range c.hosts {
			died, joining, since := s.diedWith(i, h)
			unsent := s.unsentFor(s.hops(h, min(since, c.heldSince)))
			told := c.at - unsent // what it spent until then
			_, side := s.sideOf(h, c.at)
			if !slices.ContainsFunc(side, func(i int) bool { return !s.witness.leaves(i, c.at) }) {
				told = min(told, c.began) // all leave, so that there is nobody to be told
			}
			all := len(died) > max(0, s.copies())
			saved, refundsSaved := s.savedOf(c, h)
			for k := range s.witness.spends {
				if k/witnessKeys != s.hosts[h].region {
					continue
				}
				for n, g := range s.witness.spends[k] {
					theirs := (slices.Contains(died, g.by) || slices.Contains(joining, g.by)) && g.at > since-unsent
					// It may have been told nobody before the node closed, which a check that
					// was under way when the node said goodbye outlasts.
					alone := c.orderly && g.alone && g.by == h && g.at > told && g.at <= c.at+timeoutOf(s.Scenario)
					unsaved := g.at > saved && (all || theirs) || g.units <= 0 && g.by == h && g.at > refundsSaved
					gone[k][n] = gone[k][n] || alone || g.at <= c.at && unsaved
				}
			}
		}
	}
	return gone
}

// stalls is how long a node is silent when others ask past it.
const stalls = 200 * time.Millisecond

// troubles is when a lease may be lost in a region: while messages are lost or late and
// until that is over for all, as a node ends, and ever where counts are evicted.
func (s *stage) troubles(region int) (found []trouble) {
	if s.MaxKeys > 0 {
		return []trouble{{0, never}}
	}
	for _, c := range s.witness.crashes {
		found = append(found, trouble{c.at, c.at})
	}
	course := courseOf(s.Scenario, s.regions[region], s.Lasts)
	for i := range course.eras {
		if e := &course.eras[i]; e.mute || e.deaf() || course.slowest(e) >= stalls {
			found = append(found, trouble{e.from, e.to + course.settle})
		}
	}
	return found
}

// close adds up what was spent of a key, where these of its spends may be gone, and the
// owner counts under e.Reset.
func (l *ledger) close(e *Ending, gone []bool, troubles []trouble) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := e.Key
	e.Granted = l.granted[k]
	e.Unheard, e.Unasked = unheard(l.asks[k], l.spends[k][:len(gone)], troubles)
	for n, s := range l.spends[k][:len(gone)] {
		e.Total += s.units
		if !gone[n] {
			e.Known = max(e.Known, s.reset)
		}
		if s.reset != e.Reset {
			continue
		}
		e.Spent += s.units
		if gone[n] {
			e.Lost += max(0, s.units)
			e.Regained += max(0, -s.units)
		}
	}
	for _, s := range l.stale[k] {
		if s.reset >= e.Reset {
			e.Stale += s.units
		}
	}
}

// way is how long a message is under way at most.
func (s *stage) way() time.Duration { return way(s.witness.link, s.witness.pause) }

func way(link weirtest.Link, pause time.Duration) time.Duration {
	way := link.Latency + link.Jitter + 2*pause + time.Millisecond
	if link.Loss > 0 {
		way += resends
	}
	return way
}

// unsentFor is how long what a node has counted may be nowhere else, where copies go over
// so many hops. Where packets are lost, a successor may be taken for one that is not
// heard, by all at once, until its next pong; a node that is further away hears of that a ping
// later for each hop.
func (s *stage) unsentFor(hops int) time.Duration {
	return unsentFor(s.witness.link, s.witness.pause, hops)
}

func unsentFor(link weirtest.Link, pause time.Duration, hops int) time.Duration {
	n := time.Duration(hops)
	unsent := replicaAge + 2*n*way(link, pause)
	if link.Loss > 0 {
		unsent += n * pingPace
	}
	return unsent
}

// hops is how far from a host the last of its side was just before a moment: a node that asks,
// or has the copies, may be that one.
func (s *stage) hops(h int, before time.Duration) int {
	at, side := s.sideOf(h, before)
	edges := relation(len(s.hosts), func(i, j int) bool {
		cut := s.past[at].cut
		return slices.Contains(side, i) && slices.Contains(side, j) && !cut[[2]int{i, j}] && !cut[[2]int{j, i}]
	})
	return max(1, slices.Max(ways(edges, h)))
}

// copies is how many others have each count.
func (s *stage) copies() int {
	if s.Replicas == 0 {
		return 1
	}
	return s.Replicas
}

// diedWith is who of a host's side died with it before there were new copies, and
// since when what they admitted was nowhere else, but for what was on its way:
// the crash if there are survivors, else when the side was cut off. joining are those
// without points that ended on a side that died out: they had nobody's copies, and what
// they admitted was told to that side alone.
func (s *stage) diedWith(n, h int) (died, joining []int, since time.Duration) {
	c := s.witness.crashes[n]
	died = []int{h}
	join := func(other crash) {
		for _, i := range other.hosts {
			if !other.orderly && s.hosts[i].region == s.hosts[h].region && !slices.Contains(died, i) {
				died = append(died, i)
			}
		}
	}
	if !c.orderly {
		for _, other := range s.witness.crashes[:n+1] {
			if other.at >= c.heldSince-recopied {
				join(other)
			}
		}
	}
	at, side := s.sideOf(h, c.heldSince)
	weighs, hasCopies := s.weighing(c.heldSince)
	told := func(i int) bool { return slices.Contains(died, i) || s.together(h, i, c.heldSince) }
	survives := func(i int) bool { return hasCopies[i] && !slices.Contains(died, i) && told(i) }
	if slices.ContainsFunc(side, survives) {
		if c.orderly {
			return nil, nil, never // it has handed over
		}
		return died, nil, s.shrunk(h, c.heldSince)
	}
	// The side has died out: all that was ever on it, as long as nobody else was.
	side = slices.DeleteFunc(side, func(i int) bool { return i != h && !(weighs[i] && told(i)) })
	others, joining, since := s.diedOut(at, side, c)
	died = append(died, others...)
	// Nodes that died elsewhere meanwhile, with nobody left there or too soon for new
	// copies, had the only other copies of what is older; so had nodes that died too soon
	// before for copies beyond the cut.
	for _, other := range s.witness.crashes[:n+1] {
		for _, i := range other.hosts {
			_, theirs := s.sideOf(i, other.heldSince)
			outlived := slices.ContainsFunc(theirs, func(j int) bool { return !slices.Contains(other.hosts, j) })
			if other.at >= since-recopied && (!outlived || other.at < since+noticed) {
				join(other)
			}
		}
	}
	return died, joining, s.shrunk(h, since)
}

// diedOut is all that was on a side, from an entry of the past back to when another was on
// it that has copies and outlives the crash: those with points that died, those without,
// and since when that is so. side is those that are known to have been.
func (s *stage) diedOut(at int, side []int, c crash) (died, joining []int, since time.Duration) {
	since = c.heldSince
	for survived := false; at >= 0 && !survived; at-- {
		of := s.past[at].of
		weighed, hadCopies := s.weighing(s.past[at].since)
		for i := range of {
			if of[i] < 0 || slices.Contains(side, i) || !slices.ContainsFunc(side, func(j int) bool { return of[j] == of[i] }) {
				continue
			}
			switch ends := s.diesBetween(i, s.past[at].since, c.at); {
			case ends && weighed[i]:
				side = append(side, i)
				died = append(died, i)
			case ends:
				joining = append(joining, i)
			case weighed[i]:
				survived = survived || hadCopies[i] && slices.ContainsFunc(side, func(j int) bool { return s.together(i, j, since) })
			}
		}
		if !survived {
			since = s.past[at].since
		}
	}
	return died, joining, since
}

// sideOf is who was on a host's side just before a moment, the host first, and
// where in the past that is.
func (s *stage) sideOf(h int, before time.Duration) (at int, side []int) {
	for at = len(s.past) - 1; at > 0 && s.past[at].since >= before; at-- {
	}
	of := s.past[at].of
	side = []int{h}
	for i := range of {
		if i != h && of[i] >= 0 && of[i] == of[h] {
			side = append(side, i)
		}
	}
	return at, side
}

// together reports whether two were on one side just before a moment, and not only since a
// heal, or a thaw, after which they may not have told each other yet what they had
// counted apart. A node that starts has counted nothing, and hears the others as it does.
func (s *stage) together(i, j int, before time.Duration) bool {
	met := false
	for n := len(s.past) - 1; n >= 0; n-- {
		p := s.past[n]
		switch {
		case p.since >= before:
			continue
		case met && (p.of[i] == absent || p.of[j] == absent):
			return true
		case p.of[i] < 0 || p.of[i] != p.of[j]:
			return false
		case p.since <= before-s.retold():
			return true
		}
		met = true
	}
	return met
}

// retold is how long after a heal what was counted apart may be nowhere else. Who
// is back is heard with the next pong, or the one after that: the first may answer
// a ping that the cut has held for too long, or not know yet whom others hear.
func (s *stage) retold() time.Duration {
	if s.Gossip {
		return gossipSettling + spreading
	}
	return 2*(pingPace+2*s.way()) + spreading
}

// weighing is which hosts' nodes have points at a time, as they say themselves: it makes the
// judge expect no less of them. And it is which have copies of what others count: all that
// were there from the beginning, and others once none has ended, and none was out of sight,
// for as long as it takes to copy.
func (s *stage) weighing(at time.Duration) (weighs, hasCopies []bool) {
	weighs, hasCopies = make([]bool, len(s.hosts)), make([]bool, len(s.hosts))
	for i := range s.hosts {
		since := s.servesSince(i, at)
		weighs[i] = since <= at
		hasCopies[i] = since == 0 || weighs[i] && s.copied(s.hosts[i].region, since, at)
	}
	return weighs, hasCopies
}

// servesSince is since when the node that is on a host at a time has had points, never if it
// has none then.
func (s *stage) servesSince(host int, at time.Duration) (since time.Duration) {
	started := time.Duration(-1) // when the one before ended
	if s.past[0].of[host] == absent {
		since = never
	}
	for _, c := range s.witness.crashes {
		if c.at <= at && slices.Contains(c.hosts, host) {
			started, since = c.at, never
		}
	}
	for _, a := range s.hosts[host].announced {
		switch {
		case a.at <= started || a.at > at:
		case a.joins:
			since = never
		case since == never:
			since = a.at
		}
	}
	return since
}

// copied reports whether a region was as it is for long enough between two moments.
func (s *stage) copied(region int, from, to time.Duration) bool {
	for n, p := range s.past {
		until := to
		if n+1 < len(s.past) {
			until = min(to, s.past[n+1].since)
		}
		weighs := make([]bool, len(s.hosts))
		for i := range weighs {
			weighs[i] = s.servesSince(i, p.since) <= p.since
		}
		ends := slices.ContainsFunc(s.witness.crashes, func(c crash) bool {
			return c.at == p.since && slices.ContainsFunc(c.hosts, func(h int) bool { return s.hosts[h].region == region })
		})
		switch {
		case until < from:
		case s.apart(p.of, weighs, region):
			from = until
		case ends:
			from = max(from, p.since)
			fallthrough
		default:
			if until-from >= recopied {
				return true
			}
		}
	}
	return false
}

// apart reports whether some of these hosts of a region are not on one side, or frozen.
func (s *stage) apart(of []int, hosts []bool, region int) bool {
	side := -1
	for i, on := range hosts {
		switch {
		case !on || s.hosts[i].region != region:
		case of[i] < 0 || side >= 0 && of[i] != side:
			return true
		default:
			side = of[i]
		}
	}
	return false
}

// shrunk is when a host's side last lost a member, or a link to one, or one that copies may
// go through, if that was so shortly before that what it counted may have had no other copy
// since, else before: nobody has noticed yet that copies have to go to another, or through
// another. Of several in short succession it is the first, as none of the others was noticed
// either.
func (s *stage) shrunk(h int, before time.Duration) time.Duration {
	since := before
	for n := len(s.past) - 1; n > 0 && s.past[n].since >= since-noticed; n-- {
		now, was := s.past[n].of, s.past[n-1].of
		if s.past[n].since > before || was[h] < 0 || now[h] < 0 {
			continue
		}
		for i := range now {
			if was[i] == was[h] && (now[i] != now[h] || s.lostWay(n, h, i)) {
				since = s.past[n].since
			}
		}
	}
	return since
}

// lostWay reports whether, with entry n of the past, the link between a host and i went down,
// or one of others to i that copies may go through: where the host and i have not heard each
// other directly for long enough, they go through others.
func (s *stage) lostWay(n, h, i int) bool {
	relayed := false
	for m := n - 1; m >= 0 && s.past[m+1].since > s.past[n].since-s.retold(); m-- {
		relayed = relayed || s.past[m].cut[[2]int{h, i}] || s.past[m].cut[[2]int{i, h}]
	}
	now, was := s.past[n].cut, s.past[n-1].cut
	for j, side := range s.past[n-1].of {
		to, back := [2]int{j, i}, [2]int{i, j}
		lost := now[to] && !was[to] || now[back] && !was[back]
		if lost && (j == h || relayed && side == s.past[n-1].of[h]) {
			return true
		}
	}
	return false
}

// diesBetween reports whether a host's node ended in that time.
func (s *stage) diesBetween(host int, from, to time.Duration) bool {
	return slices.ContainsFunc(s.witness.crashes, func(c crash) bool {
		return c.at >= from && c.at <= to && slices.Contains(c.hosts, host)
	})
}
