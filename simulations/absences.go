package main

import (
	"slices"
	"time"

	"github.com/weir-go/weir/cluster"
)

// absence is a time in which a running node was not connected to another running node, or
// lacked it in its roster. An absence may begin and end between two calls of Members.
type absence struct {
	By, Of   int16         // indices in Scenario.Nodes: Of was absent from the view of By
	Both     time.Duration // when the later of the two processes began to run
	From, To time.Duration
}

// recordView records the view of a member.
func (s *stage) recordView(_ string, v *cluster.View) {
	if v.Self < 0 {
		return // the node has left
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := v.Members[v.Self].Name
	s.views[name] = v
	for _, h := range s.hosts {
		if h.runs != nil && h.runs.name == name {
			s.trackAbsencesOf(h)
		}
	}
}

// trackAbsences compares all views with the running nodes. The caller must hold s.mu.
func (s *stage) trackAbsences() {
	for _, h := range s.hosts {
		s.trackAbsencesOf(h)
	}
}

// trackAbsencesOf compares the view of one host with the running nodes. The caller must
// hold s.mu.
func (s *stage) trackAbsencesOf(h *host) {
	var v *cluster.View
	if h.runs != nil {
		v = s.views[h.runs.name]
	}
	for _, other := range s.hosts {
		if other == h || other.region != h.region {
			continue
		}
		pair := [2]int{h.index, other.index}
		absent := false
		if v != nil && other.runs != nil && !other.runs.leaves { // members remove a leaving node from the roster before the node knows that it has left
			at := slices.IndexFunc(v.Members, func(m cluster.Member) bool { return m.Name == other.runs.name })
			absent = at < 0 || !v.Direct[at]
		}
		was := s.current[pair]
		switch {
		case absent && was == nil:
			a := &absence{By: int16(h.index), Of: int16(other.index), Both: max(h.runs.since, other.runs.since), From: s.elapsed()}
			s.current[pair] = a
			s.absences = append(s.absences, a)
		case !absent && was != nil:
			was.To = s.elapsed()
			delete(s.current, pair)
		}
	}
}

// endAbsences ends the current absences and returns all absences.
func (s *stage) endAbsences() (all []absence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.absences {
		if a.To == 0 {
			a.To = s.elapsed()
		}
		all = append(all, *a)
	}
	return all
}

// checkAbsences reports absences in times in which the two nodes must be connected. The
// scenario and the recorded starts of both processes determine these times: both nodes have
// run for long enough, and no message between them was cut off, lost, held by a freeze or
// too slow.
func checkAbsences(r *trial, broken func(time.Duration, string, ...any)) {
	for _, a := range r.Absences {
		c := r.courses[r.Scenario.Nodes[a.By].Region]
		since := never // when the two nodes became connected to each other for certain
		for i := range c.eras {
			e := &c.eras[i]
			switch {
			case !e.hears[a.By][a.Of]:
				since = never
			case i == 0 && !r.Scenario.Gossip: // with real gossip, the nodes have just started
				since = -c.settle // at the beginning of a run, all nodes are connected
			case since == never:
				since = e.from
			}
			if since == never {
				continue
			}
			from := max(e.from, a.From, since+c.settle)
			if a.Both > 0 {
				from = max(from, a.Both+c.settle)
			}
			if e.unaware > 0 {
				since = e.to // if a side has forgotten a member, the member joins all sides again
			}
			if to := min(e.to, a.To); from < to {
				broken(from, "%s ran, but %s was not connected to it from %v to %v: no fault separated them",
					r.Scenario.Nodes[a.Of].Name, r.Scenario.Nodes[a.By].Name, a.From, a.To)
				break
			}
		}
	}
}
