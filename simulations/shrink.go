package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"time"
)

// maxTries is the maximum number of runs of a call of shrink.
const maxTries = 300

// reductions make a scenario simpler. A reduction has several variants, and the argument
// n is the number of the variant. The reduction returns false if n is beyond the last
// variant. Lists are emptied from the end, because a fault may need an earlier fault: a
// start needs a kill.
var reductions = []func(s *Scenario, n int) bool{
	func(s *Scenario, n int) bool { return drop(&s.Faults, n) },
	dropPair,
	spareNode,
	func(s *Scenario, n int) bool { return drop(&s.Loads, n) },
	func(s *Scenario, n int) bool { return drop(&s.Limits, n) },
	dropNode,
	func(s *Scenario, n int) bool {
		part := s.Lasts >> (n + 1)
		s.Lasts = (s.Lasts - part).Truncate(time.Second)
		return part >= time.Second
	},
	makePlain,
	func(s *Scenario, n int) bool {
		units := []time.Duration{time.Second, 100 * time.Millisecond, 10 * time.Millisecond}
		if n < len(units)*len(s.Faults) {
			f := &s.Faults[n/len(units)]
			f.At = f.At.Truncate(units[n%len(units)]) // rounding up may go beyond the end
		}
		return n < len(units)*len(s.Faults)
	},
}

// shrink removes the parts of a scenario that a failure does not need. The result is
// valid, and breaks an invariant if s does. With real gossip, the result broke it in one
// run, and may not break it in other runs. At most maxTries runs are played.
func shrink(s *Scenario, breaks func(*Scenario) bool) *Scenario {
	best, tries := s.clone(), 0
	for better := true; better; {
		better = false
		for _, reduce := range reductions {
			for n := 0; tries < maxTries; {
				simpler := best.clone()
				if !reduce(simpler, n) {
					break
				}
				simpler.sort()
				if simpler.equal(best) || !simpler.valid() {
					n++
					continue
				}
				if tries++; breaks(simpler.clone()) {
					best, better = simpler, true
				} else {
					n++
				}
			}
		}
	}
	if !best.equal(s) {
		best.About = "Shrunk from " + s.Name + ": it broke an invariant, and no simpler scenario that was tried did."
	}
	return best
}

// valid reports whether a scenario can be read from its file.
func (s *Scenario) valid() bool {
	_, err := parse(s.Name, s.yaml())
	return err == nil
}

// drop deletes the nth element of a list, counted from the end of the list.
func drop[T any](list *[]T, n int) bool {
	at := len(*list) - 1 - n
	if at >= 0 {
		*list = slices.Delete(*list, at, at+1)
	}
	return at >= 0
}

// dropPair deletes a fault and the next fault of the same node, for example a kill and
// the next start.
func dropPair(s *Scenario, n int) bool {
	at := len(s.Faults) - 1 - n
	if at < 0 {
		return false
	}
	of := s.Faults[at].Nodes
	for i := at + 1; i < len(s.Faults); i++ {
		if slices.ContainsFunc(s.Faults[i].Nodes, func(name string) bool { return slices.Contains(of, name) }) {
			s.Faults = slices.Delete(s.Faults, i, i+1)
			break
		}
	}
	s.Faults = slices.Delete(s.Faults, at, at+1)
	return true
}

// spareNode deletes the nth node from the Nodes of all faults, and deletes the faults that
// hit only this node.
func spareNode(s *Scenario, n int) bool {
	if n >= len(s.Nodes) {
		return false
	}
	name := s.Nodes[n].Name
	s.Faults = slices.DeleteFunc(s.Faults, func(f Fault) bool { return slices.Equal(f.Nodes, []string{name}) })
	for i := range s.Faults {
		dropName(&s.Faults[i].Nodes, name)
	}
	return true
}

// dropNode deletes a node from the scenario and from all lists of names.
func dropNode(s *Scenario, n int) bool {
	if !spareNode(s, n) {
		return false
	}
	name := s.Nodes[n].Name
	for i := range s.Loads {
		dropName(&s.Loads[i].From, name)
	}
	for i := range s.Faults {
		f := &s.Faults[i]
		for j := range f.Sides {
			dropName(&f.Sides[j], name)
		}
		f.Sides = slices.DeleteFunc(f.Sides, func(side []string) bool { return len(side) == 0 })
	}
	s.Nodes = slices.Delete(s.Nodes, n, n+1)
	return true
}

func dropName(names *[]string, name string) {
	*names = slices.DeleteFunc(*names, func(other string) bool { return other == name })
}

// makePlain sets a field to its zero value. Gossip is the first field, because a run
// without gossip replays.
func makePlain(s *Scenario, n int) bool {
	fields := []any{&s.Gossip, &s.WAN, &s.Network.Jitter, &s.Network.Loss, &s.Network.Duplicates}
	for _, setting := range reflect.ValueOf(&s.Settings).Elem().Fields() {
		fields = append(fields, setting.Addr().Interface())
	}
	for i := range s.Loads {
		l := &s.Loads[i]
		fields = append(fields, &l.From, &l.Zipf, &l.Keys, &l.Units)
	}
	for i := range s.Faults {
		fields = append(fields, &s.Faults[i].Breaks)
	}
	if n < len(fields) {
		reflect.ValueOf(fields[n]).Elem().SetZero()
	}
	return n < len(fields)
}

// clone returns a copy that shares nothing with s.
func (s *Scenario) clone() *Scenario {
	c, text := new(Scenario), new(bytes.Buffer)
	if err := errors.Join(json.NewEncoder(text).Encode(s), json.NewDecoder(text).Decode(c)); err != nil {
		panic(err) // all its types have a JSON form
	}
	return c
}

func (s *Scenario) equal(o *Scenario) bool { return reflect.DeepEqual(s, o) }
