package main

import (
	"math"
	"slices"
	"time"
)

// What survives a stop of all nodes of a region. Each node that ended had a last snapshot, of
// those that were loaded later. All that was counted before the oldest of these is in one of
// them: the node that counted it has it, and so has the one that took it over. Where nothing else moved
// for so long, as many of them may be missing as there are copies of each count. Where all have left in
// order, and the snapshots of each were loaded, and none was lost, nothing is missing: it does not
// matter whether the product has written what it should have.

// outage begins as the last node of a region ends.
type outage struct {
	region int
	at     time.Duration
}

// stopped takes note of the regions in which no node runs any more, as some of these nodes have
// ended. What starts meanwhile has met nobody. s.mu is held.
func (s *stage) stopped(ended ...int) {
	for region := range s.regions {
		of := func(h *host) bool { return h.region == region }
		runs := func(h *host) bool { return of(h) && h.runs != nil }
		if slices.ContainsFunc(ended, func(i int) bool { return of(s.hosts[i]) }) && !slices.ContainsFunc(s.hosts, runs) {
			s.outages = append(s.outages, outage{region, s.now()})
		}
	}
}

// savedOf is saved of the outage that a host's end was part of, below zero if it was of none, or
// nodes write no snapshots. refunds is the same of what the host gave back, and of resets:
// a node that leaves last does what it is asked to until it has ended, also once it has written
// its snapshot.
func (s *stage) savedOf(c crash, host int) (takes, refunds time.Duration) {
	i := slices.IndexFunc(s.outages, func(o outage) bool {
		return o.region == s.hosts[host].region && c.at <= o.at && c.at > o.at-moving
	})
	if i < 0 || s.disks == nil {
		return math.MinInt64, c.at
	}
	return s.saved(s.outages[i]), s.loaded(s.hosts[host].name, c.at, s.outages[i].at)
}

// saved is until when all that was counted in the region is in snapshots that were loaded
// since. s.mu is held.
func (s *stage) saved(o outage) time.Duration {
	var last []time.Duration
	orderly, alone, led := true, true, never
	for _, c := range s.witness.crashes {
		if c.at > o.at || c.at <= o.at-moving {
			continue
		}
		for _, h := range c.hosts {
			if s.hosts[h].region != o.region {
				continue
			}
			at := s.loaded(s.hosts[h].name, c.at, o.at)
			whole := at >= 0 && !s.damaged(s.hosts[h].name, c.at-2*s.Snapshots)
			if due := c.at - 2*s.Snapshots; whole && !c.orderly && s.unmoved(o) {
				at = max(at, due) // what is due is there, or it is the product's fault
			}
			last = append(last, at)
			orderly = orderly && c.orderly && whole
			alone = alone && c.at == o.at
			if c.began < c.at {
				led = min(led, c.began) // from then on, a leaver without a receiver sends its units to no member
			}
		}
	}
	if orderly {
		return o.at
	}
	slices.Sort(last)
	missing := 0
	if alone && s.unmoved(o) {
		missing = min(s.copies(), len(last)-1)
	}
	if missing > 0 && last[0] < last[missing] {
		return max(last[0], min(led, last[missing]-s.untold(len(s.hosts)))) // a copy is so old
	}
	return max(last[0], min(led, last[missing]))
}

// damaged reports whether a fault hits a host's snapshots from a moment on.
func (s *stage) damaged(host string, from time.Duration) bool {
	return slices.ContainsFunc(s.Faults, func(f Fault) bool {
		return f.At >= from && (f.Kind == FaultLose || f.Kind == FaultRevert) && slices.Contains(f.Nodes, host)
	})
}

// loaded is when the newest snapshot of a host began that it had written by its end, of those
// that were loaded after an outage; below zero if there was none. One that the host has written
// since it started again has no more than was loaded.
func (s *stage) loaded(host string, end, outage time.Duration) time.Duration {
	newest, next := time.Duration(math.MinInt64), never
	for _, o := range s.outages {
		if o.at > outage && s.regions[o.region] == s.regions[s.named[host].region] {
			next = min(next, o.at)
		}
	}
	for _, l := range s.disks.loads {
		if l.of == host && l.began <= end && l.ran >= outage && l.ran < next {
			newest = max(newest, l.began)
		}
	}
	return newest
}

// unmoved reports whether nothing happened to the nodes of a region for so long before an outage that
// each count was at its owner and at those that have copies, and in what they wrote last.
func (s *stage) unmoved(o outage) bool { return s.quiet(o.region, o.at-moving-s.Snapshots, o.at) }
