package main

import (
	"math"
	"slices"
	"time"
)

// This file computes which counts survive a stop of all nodes of a region. The last
// snapshot of a node that ended is the newest one of its snapshots that was loaded later.
// Every unit that was counted before the oldest of these last snapshots is in one of them:
// in the last snapshot of the node that counted the unit, or of the node that took the unit
// over. If no counts moved for long enough before the stop (isUnmoved), as many of the last
// snapshots may be lost as there are copies of each count. If all nodes left in order, the
// snapshots of each were loaded and no snapshot was lost, then no count is missing. The
// judge requires this even if the product has not written a snapshot that it should have
// written.

// outage is a time in which no node of a region runs. It begins when the last node ends.
type outage struct {
	region int
	at     time.Duration
}

// recordOutages records the regions in which no node runs any more, because some of their
// nodes have ended. A node that starts meanwhile has met no member. The caller must hold
// s.mu.
func (s *stage) recordOutages(ended ...int) {
	for region := range s.regions {
		of := func(h *host) bool { return h.region == region }
		runs := func(h *host) bool { return of(h) && h.runs != nil }
		if slices.ContainsFunc(ended, func(i int) bool { return of(s.hosts[i]) }) && !slices.ContainsFunc(s.hosts, runs) {
			s.outages = append(s.outages, outage{region, s.elapsed()})
		}
	}
}

// savedFor returns the times until which snapshots have the changes that the end of a
// host in the crash c may have lost. The time takes applies to spends, and is the result
// of savedUntil for the outage to which the crash belongs. The time refunds applies to
// the refunds and resets that the host executed. refunds is the time at which the writing
// of the last loaded snapshot of the host began, because the last node to leave executes
// requests even after it has written its snapshot. If the crash belongs to no outage, or
// nodes write no snapshots, takes is below zero and refunds is c.at.
func (s *stage) savedFor(c crash, host int) (takes, refunds time.Duration) {
	i := slices.IndexFunc(s.outages, func(o outage) bool {
		return o.region == s.hosts[host].region && c.at <= o.at && c.at > o.at-moving
	})
	if i < 0 || s.disks == nil {
		return math.MinInt64, c.at
	}
	return s.savedUntil(s.outages[i]), s.lastLoaded(s.hosts[host].name, c.at, s.outages[i].at)
}

// savedUntil returns the time until which all counts of the region are in snapshots that
// were loaded after the outage. The caller must hold s.mu.
func (s *stage) savedUntil(o outage) time.Duration {
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
			at := s.lastLoaded(s.hosts[h].name, c.at, o.at)
			whole := at >= 0 && !s.isDamaged(s.hosts[h].name, c.at-2*s.Snapshots)
			if due := c.at - 2*s.Snapshots; whole && !c.orderly && s.isUnmoved(o) {
				at = max(at, due) // a snapshot that was due exists, or the product is at fault
			}
			last = append(last, at)
			orderly = orderly && c.orderly && whole
			alone = alone && c.at == o.at
			if c.began < c.at {
				led = min(led, c.began) // a leaving node may have found no receiver, so units from then on may be on no other node
			}
		}
	}
	if orderly {
		return o.at
	}
	slices.Sort(last)
	missing := 0
	if alone && s.isUnmoved(o) {
		missing = min(s.countCopies(), len(last)-1)
	}
	if missing > 0 && last[0] < last[missing] {
		return max(last[0], min(led, last[missing]-s.firstCopyDelay(len(s.hosts)))) // copies may be as old as firstCopyDelay
	}
	return max(last[0], min(led, last[missing]))
}

// isDamaged reports whether a fault hits the snapshots of a host at or after a time.
func (s *stage) isDamaged(host string, from time.Duration) bool {
	return slices.ContainsFunc(s.Faults, func(f Fault) bool {
		return f.At >= from && (f.Kind == FaultLose || f.Kind == FaultRevert) && slices.Contains(f.Nodes, host)
	})
}

// lastLoaded returns when a host began to write its newest snapshot, among the snapshots
// that the host began by the time end, and that nodes loaded after the given outage and
// before the next outage. The result is below zero if there is no such snapshot. A
// snapshot that the host has written since it started again has no more than was loaded.
func (s *stage) lastLoaded(host string, end, outage time.Duration) time.Duration {
	newest, next := time.Duration(math.MinInt64), never
	for _, o := range s.outages {
		if o.at > outage && s.regions[o.region] == s.regions[s.named[host].region] {
			next = min(next, o.at)
		}
	}
	for _, l := range s.disks.loads {
		if l.writer == host && l.began <= end && l.ran >= outage && l.ran < next {
			newest = max(newest, l.began)
		}
	}
	return newest
}

// isUnmoved reports whether a region was quiet long enough before an outage. Each count was
// then at its owner and at the members with copies, and was in the last snapshots of these
// members.
func (s *stage) isUnmoved(o outage) bool { return s.wasQuiet(o.region, o.at-moving-s.Snapshots, o.at) }
