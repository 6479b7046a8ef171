package main

import (
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

// A region is whole if all its nodes hear each other directly, none is frozen, and each has its counts.
// Soon after that begins, the owner of a count and Replicas other members have the count, and a copy
// is at most 100 ms old. A crash in a whole region takes the last spends of the nodes that ended, and
// all spends if these outnumber the replicas. A crash in another region may take all spends: the judge
// does not follow copies from member to member, because it would repeat the product's replication.
//
// A node asks several members in turn when the first does not answer in time, and each may grant.
// The surplus grants are refunded as they arrive, unless a fault prevents the refund.
const (
	replicaAge = 100 * time.Millisecond // the most, of an acknowledged count
	recopied   = 3 * time.Second        // after a crash there are Replicas again
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
	doubts  [][]doubt         // of each key
	refunds []int64           // units of each key that were to be given back
	crashes []crash
	moves   []move
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
		spends: make([][]spent, keys), granted: make([]int64, keys), doubts: make([][]doubt, keys), refunds: make([]int64, keys),
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

// move is a start or an end of a host's node.
type move struct {
	host int
	at   time.Duration
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
	at      time.Duration
	hosts   []int
	orderly bool          // it has handed over, as far as there was anybody
	began   time.Duration // when it began to, at if it did not
}

// note takes down a check of the witness.
func (l *ledger) note(c Check, killed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if killed || c.Err != "" || c.Answered-c.Asked >= l.slow || l.crashed(c.Asked, c.Answered) || l.broke(c.Asked, c.Answered) {
		l.doubts[c.Key] = append(l.doubts[c.Key], doubt{c.Asked, c.Answered, c.Units})
	}
	if !killed && c.Err == "" && c.Allowed {
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
func (l *ledger) returned(key int, units int64, reset uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refunds[key] += units
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

func (l *ledger) crash(at time.Duration, died []int) {
	if len(died) > 0 {
		l.crashes = append(l.crashes, crash{at: at, hosts: died, began: at})
	}
}

// left is a crash if there was nobody to hand over to, or too little time.
func (l *ledger) left(began, at time.Duration, h int, unfinished bool) {
	l.crashes = append(l.crashes, crash{at, []int{h}, !unfinished, began})
}

func (l *ledger) slowest(link weirtest.Link) {
	l.link.Latency = max(l.link.Latency, link.Latency)
	l.link.Jitter = max(l.link.Jitter, link.Jitter)
	l.link.Loss = max(l.link.Loss, link.Loss)
}

// gone reports of each spend of each key whether crashes may have taken it.
func (s *stage) gone() (gone [][]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.witness.slowest(s.Network)
	unsent := s.untold()
	gone = make([][]bool, len(s.witness.spends))
	for k := range gone {
		gone[k] = make([]bool, len(s.witness.spends[k]))
	}
	for _, c := range s.witness.crashes {
		for _, h := range c.hosts {
			region := s.hosts[h].region
			ended := s.endedAt(c.at, region)
			all := !s.quiet(region, c.began-s.copied(), c.at) || len(ended) > s.copiesBefore(region, c)
			saved, refundsSaved := s.savedOf(c, h)
			for k := range s.witness.spends {
				if k/witnessKeys != region {
					continue
				}
				for n, g := range s.witness.spends[k] {
					theirs := !c.orderly && slices.Contains(ended, g.by) && g.at > c.at-unsent
					// A check that was under way as the node said goodbye may outlast the
					// goodbye, and its spend is told to no member.
					alone := c.orderly && g.alone && g.by == h && g.at > c.began-unsent && g.at <= c.at+timeoutOf(s.Scenario)
					unsaved := g.at > saved && (all || theirs) || g.units <= 0 && g.by == h && g.at > refundsSaved
					gone[k][n] = gone[k][n] || alone || g.at <= c.at && unsaved
				}
			}
		}
	}
	return gone
}

// endedAt returns the hosts of a region whose nodes ended, or started, at a moment: several faults may share it.
func (s *stage) endedAt(at time.Duration, region int) (ended []int) {
	for _, m := range s.witness.moves {
		if m.at == at && s.hosts[m.host].region == region {
			ended = append(ended, m.host)
		}
	}
	return ended
}

// quiet reports whether a region was whole from one moment to another, and none of its nodes started
// or ended between them.
func (s *stage) quiet(region int, from, to time.Duration) bool {
	for _, m := range s.witness.moves {
		if s.hosts[m.host].region == region && m.at > from && m.at < to {
			return false
		}
	}
	return !slices.ContainsFunc(s.courses[region].eras, func(e era) bool { return e.from < to && e.to > from && e.whole > max(e.from, from) })
}

// copied is how long after a region became whole each count has all its copies.
func (s *stage) copied() time.Duration {
	if s.Gossip {
		return recopied + gossipSettling
	}
	return recopied + 2*(pingPace+2*s.way())
}

// copiesBefore is how many members have each count beside its owner before a crash. A member that
// leaves hands over to any other.
func (s *stage) copiesBefore(region int, c crash) int {
	others := s.courses[region].at(c.began-1).nodes() - 1
	if c.orderly {
		return others
	}
	return min(max(0, s.copies()), others)
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
	course := s.courses[region]
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
	way := way(l.link, l.pause)
	l.mu.Lock()
	defer l.mu.Unlock()
	k := e.Key
	e.Granted = l.granted[k]
	e.Unheard = unheard(l.doubts[k], way, l.refunds[k], l.spends[k][:len(gone)], troubles)
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

// untold returns the maximum time between a spend and its first copy in a whole region. If packets
// are lost, all members may assume that a successor is disconnected until its next pong.
func (s *stage) untold() time.Duration { return unsentFor(s.witness.link, s.witness.pause, 1) }

// unsentFor is untold for copies that go over the given number of hops.
func unsentFor(link weirtest.Link, pause time.Duration, hops int) time.Duration {
	n := time.Duration(hops)
	unsent := replicaAge + 2*n*way(link, pause)
	if link.Loss > 0 {
		unsent += n * pingPace
	}
	return unsent
}

// copies is how many others have each count.
func (s *stage) copies() int {
	if s.Replicas == 0 {
		return 1
	}
	return s.Replicas
}
