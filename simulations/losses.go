package main

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir"
)

// A region is whole if all its nodes are connected to each other directly, none is
// frozen, and each has its counts. Soon after a region becomes whole, the owner of a
// count and Replicas other members have the count, and a copy is at most 100 ms old. A
// crash in a whole region takes the last spends of the nodes that ended, and all spends
// if more nodes ended than there are replicas. A crash in another region may take all
// spends: the judge does not follow copies from member to member, because it would repeat
// the product's replication.
//
// A node asks several members in turn when the first does not answer in time, and each
// may grant. The surplus grants are refunded as they arrive, unless a fault prevents the
// refund.
const (
	replicaAge = 100 * time.Millisecond     // maximum, for an acknowledged count
	recopied   = 3 * time.Second            // the time from a crash until there are Replicas copies again
	resends    = 3 * 200 * time.Millisecond // delay of a message whose packet is lost three times
	pingPace   = 300 * time.Millisecond     // interval of pings
)

// ledger records the units of the witness limit.
type ledger struct {
	mu      sync.Mutex // guards spends, which nodes report under their own locks
	keys    map[[16]byte]int
	spends  [][]spent         // the spends of each key, in order
	granted []int64           // the number of units that were granted to callers, minus the units that they gave back, for each key
	resets  []uint64          // for each key, the highest reset number that a node has known
	knows   map[knower]uint64 // the number of the last reset that the node of each host knew, for each key
	refunds [][]refunded      // the refunds of each key
	crashes []crash
	moves   []move
}

// spent is the number of units that a host's node has spent or, if negative, returned.
type spent struct {
	units int64
	at    time.Duration
	by    int
	alone bool // the node spent from its own share for its caller, because no member answered
	// reset is the number of the last reset that the node knew. A record of 0 units means
	// that the node has heard of this reset now.
	reset uint64
}

// refunded is units that a caller gave back, whether or not a node returned them.
type refunded struct {
	units int64
	reset uint64 // the highest number of a known reset, at the end of the refund
}

type knower struct{ host, key int }

func newLedger(keys int) ledger {
	return ledger{
		spends: make([][]spent, keys), granted: make([]int64, keys), refunds: make([][]refunded, keys),
		resets: make([]uint64, keys), knows: make(map[knower]uint64),
	}
}

// observe records the units that a node has spent of a count, and its last known reset.
func (l *ledger) observe(id [16]byte, reset uint64, units int64, at time.Duration, by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, ok := l.keys[id]
	if !ok {
		return
	}
	l.spends[k] = append(l.spends[k], spent{units: units, at: at, by: by, reset: reset})
	l.knows[knower{by, k}] = reset
	l.resets[k] = max(l.resets[k], reset)
}

// move is the start or the end of a node.
type move struct {
	host int
	at   time.Duration
}

// forgetResets deletes all of the resets that the node on a host knows, because its next node does
// not know them.
func (l *ledger) forgetResets(host int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.spends {
		delete(l.knows, knower{host, k})
	}
}

// crash is the end of nodes at the same time, with the counts that they had.
type crash struct {
	at      time.Duration
	hosts   []int
	orderly bool          // the hosts have handed over their counts, if there was a member that could receive them
	began   time.Duration // when the hand-over began, or the time in the field at if there was no hand-over
	lag     time.Duration // how long changes waited for room in the lowered frames of the hosts
}

// recordGrant adds the units of a witness check to the granted units, and marks the spend
// if the node decided alone.
func (l *ledger) recordGrant(c Check) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Err != "" || !c.Allowed {
		return
	}
	l.granted[c.Key] += c.Units
	if c.Source != weir.Budget && c.Source != weir.FailedOpen {
		return
	}
	for i, s := range slices.Backward(l.spends[c.Key]) {
		if !s.alone && s.by == int(c.Node) && s.units == c.Units && s.at >= c.Asked {
			l.spends[c.Key][i].alone = true
			return
		}
	}
}

// beginRefund reports whether callers have been granted at least the given units of a key,
// and if so, subtracts them. A node that does not know all of these units returns fewer.
func (l *ledger) beginRefund(key int, units int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.granted[key] < units {
		return false
	}
	l.granted[key] -= units
	return true
}

// endRefund records a refund, even if it failed.
func (l *ledger) endRefund(key int, units int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refunds[key] = append(l.refunds[key], refunded{units, l.resets[key]})
}

// lostSpends reports for each spend of each key whether a crash may have taken the spend.
func (s *stage) lostSpends() (gone [][]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unsent := s.firstCopyDelay(1)
	gone = make([][]bool, len(s.witness.spends))
	for k := range gone {
		gone[k] = make([]bool, len(s.witness.spends[k]))
	}
	for _, c := range s.witness.crashes {
		for _, h := range c.hosts {
			region := s.hosts[h].region
			ended := s.endedAt(c.at, region)
			all := !s.wasQuiet(region, c.began-s.copyTime(), c.at) || len(ended) > s.countCopiesBefore(region, c)
			saved, refundsSaved := s.savedFor(c, h)
			for k := range s.witness.spends {
				if k/witnessKeys != region {
					continue
				}
				for n, g := range s.witness.spends[k] {
					// A check may end after the leave of its node has ended. If the node
					// then decides alone, no member receives the units.
					late := c.orderly && g.alone && g.by == h && g.at > c.began-unsent && g.at <= c.at+timeoutOf(s.Scenario)
					theirs := !c.orderly && slices.Contains(ended, g.by) && g.at > c.at-max(unsent, replicaAge+c.lag)
					unsaved := g.at > saved && (all || theirs) || g.units <= 0 && g.by == h && g.at > refundsSaved
					gone[k][n] = gone[k][n] || late || g.at <= c.at && unsaved
				}
			}
		}
	}
	return gone
}

// endedAt returns the hosts of a region whose nodes ended or started at a time. Several
// faults may occur at the same time.
func (s *stage) endedAt(at time.Duration, region int) (ended []int) {
	for _, m := range s.witness.moves {
		if m.at == at && s.hosts[m.host].region == region {
			ended = append(ended, m.host)
		}
	}
	return ended
}

// wasQuiet reports whether a region was whole in a span, and none of its nodes started or
// ended.
func (s *stage) wasQuiet(region int, from, to time.Duration) bool {
	isMove := func(m move) bool { return s.hosts[m.host].region == region && m.at > from && m.at < to }
	isPartial := func(e era) bool { return e.from < to && e.to > from && e.partial }
	return !slices.ContainsFunc(s.witness.moves, isMove) && !slices.ContainsFunc(s.courses[region].eras, isPartial)
}

// copyTime returns the time after which a whole region has all copies of each count. A node
// that has started takes over its counts first.
func (s *stage) copyTime() time.Duration {
	if s.Gossip {
		return 2*recopied + gossipSettling
	}
	return 2*recopied + 2*(pingPace+2*s.maxDelay())
}

// countCopiesBefore returns how many members have each count beside its owner before a
// crash. A member that leaves in order hands over to any other member.
func (s *stage) countCopiesBefore(region int, c crash) int {
	others := s.courses[region].eraAt(c.began-1).nodes() - 1
	if c.orderly {
		return others
	}
	return min(s.countCopies(), others)
}

// close adds up the spends of a key. The argument gone reports which of the spends may be
// lost, and e.Reset is the reset that the owner knows.
func (l *ledger) close(e *Ending, gone []bool, disturbed []span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := e.Key
	e.Granted = l.granted[k]
	e.Ungranted = maxUngranted(l.refunds[k], l.spends[k][:len(gone)], disturbed)
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
	for _, r := range l.refunds[k] {
		if r.reset > 0 && r.reset >= e.Reset {
			e.Stale += r.units
		}
	}
}

// maxDelay returns the longest delay of a message in a region, with the pauses of its
// ends.
func (s *Scenario) maxDelay() time.Duration {
	delay, pause := s.Network.Latency+s.Network.Jitter, time.Duration(0)
	for i := range s.Faults {
		f := &s.Faults[i]
		pause = max(pause, f.Pauses)
		if f.Kind == FaultLink && s.usualLink(f) == s.Network {
			delay = max(delay, f.Link.Latency+f.Link.Jitter)
		}
	}
	if s.isLossy() {
		delay += resends
	}
	return delay + 2*pause + time.Millisecond
}

// isLossy reports whether links within a region lose packets at some time.
func (s *Scenario) isLossy() bool {
	return s.Network.Loss > 0 || slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Link.Loss > 0 && s.usualLink(&f) == s.Network })
}

// firstCopyDelay returns the maximum time between a spend and its first copy, if copies
// pass the given number of hops. The region must be whole, as described at the top of
// this file. At each hop, the copy waits for the answer to the previous frame, and then
// travels. If packets are lost, each hop may also have to wait for a pong, because all
// members may assume until then that a successor is disconnected.
func (s *Scenario) firstCopyDelay(hops int) time.Duration {
	each := 3 * s.maxDelay()
	if s.isLossy() {
		each += pingPace
	}
	return replicaAge + time.Duration(hops)*each
}

func (s *stage) countCopies() int { return max(0, cmp.Or(s.Replicas, 1)) }

// leaseLasts is longer than the time in which the node of a lease may grant its units to
// callers, or return the other units. This holds on the slowest link without loss.
const leaseLasts = time.Second

// maxUngranted returns an upper bound for the units of a key that nodes spent, but did not
// grant to a caller. These are the units of spends in a disturbed time, or at most
// leaseLasts before a disturbed time or a reset, and the units of refunds that no node applied.
//
// A node that has a lease grants its units to callers within leaseLasts, or returns them. So the
// spends of a lease add up to the granted units, unless the lease is lost. A lease is lost only by
// a reset or in a disturbed time.
func maxUngranted(refunds []refunded, spends []spent, disturbed []span) (units int64) {
	unreturned := int64(0)
	for _, r := range refunds {
		unreturned += r.units
	}
	for _, s := range spends {
		unreturned += min(0, s.units)
		if s.units == 0 { // the node has heard of a reset
			disturbed = append(slices.Clip(disturbed), span{s.at, s.at})
		}
	}
	for _, s := range spends {
		near := func(d span) bool { return s.at <= d.to && d.from <= s.at+leaseLasts }
		if s.units > 0 && slices.ContainsFunc(disturbed, near) {
			units += s.units
		}
	}
	return units + max(0, unreturned)
}
