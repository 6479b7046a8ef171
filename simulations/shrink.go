package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"time"
)

// maxTries bounds how often shrink has a scenario run.
const maxTries = 300

// shrink takes away from a scenario that breaks something what it breaks without:
// faults, loads, limits, nodes, settings and time; and it rounds times. What it
// returns is valid and breaks, if s does; with real gossip it broke once, and may not do
// so again. It asks breaks at most 300 times.
func shrink(s *Scenario, breaks func(*Scenario) bool) *Scenario {
	k := &shrinker{best: s.clone(), breaks: breaks, tries: maxTries}
	for k.tries > 0 {
		before := k.tries
		better := k.shorten()
		better = k.fewer(func(s *Scenario) int { return len(s.Faults) }, (*Scenario).withoutFaults) || better
		better = k.fewer(func(s *Scenario) int { return len(s.Limits) }, (*Scenario).withoutLimits) || better
		better = k.fewer(func(s *Scenario) int { return len(s.Loads) }, (*Scenario).withoutLoads) || better
		better = k.fewer(func(s *Scenario) int { return len(s.Nodes) }, (*Scenario).withoutNodes) || better
		better = k.plain() || better
		better = k.round() || better
		if !better || k.tries == before {
			break
		}
	}
	if !k.best.equal(s) {
		k.best.About = "Shrunk from " + s.Name + ": it broke, and with anything less that was tried it did not."
	}
	return k.best
}

type shrinker struct {
	best   *Scenario
	breaks func(*Scenario) bool
	tries  int
}

// try takes a scenario that is valid, or can be made so, and still breaks.
func (k *shrinker) try(s *Scenario) bool {
	if k.tries <= 0 || !s.repair() {
		return false
	}
	k.tries--
	if !k.breaks(s.clone()) {
		return false
	}
	k.best = s
	return true
}

// fewer removes as many as it can of a list: halves first, then ever smaller
// parts (delta debugging; Zeller and Hildebrandt, 2002).
func (k *shrinker) fewer(count func(*Scenario) int, without func(s *Scenario, from, to int)) (better bool) {
	for part := (count(k.best) + 1) / 2; part > 0; part /= 2 {
		for to := count(k.best); to > 0; to -= part {
			to = min(to, count(k.best)) // repair may have dropped more
			s := k.best.clone()
			without(s, max(0, to-part), to)
			better = k.try(s) || better
		}
	}
	return better
}

// shorten ends the scenario earlier.
func (k *shrinker) shorten() (better bool) {
	for part := k.best.Lasts / 2; part >= time.Second; part /= 2 {
		s := k.best.clone()
		if s.Lasts -= part; s.Lasts > time.Second {
			s.Lasts = s.Lasts.Round(time.Second)
		}
		if s.Lasts < k.best.Lasts {
			better = k.try(s) || better
		}
	}
	return better
}

// plain sets what is unusual back to what is usual.
func (k *shrinker) plain() (better bool) {
	zero := func(of func(*Scenario) any, fields ...string) {
		for _, name := range fields {
			s := k.best.clone()
			if f := reflect.ValueOf(of(s)).Elem().FieldByName(name); !f.IsZero() {
				f.SetZero()
				better = k.try(s) || better
			}
		}
	}
	zero(func(s *Scenario) any { return s }, "Gossip", // first: then its run replays
		"Replicas", "Expect", "Timeout", "Forget", "MaxKeys", "WAN", "RegionShares", "Hot", "Shared", "Snapshots", "Caps")
	zero(func(s *Scenario) any { return &s.Network }, "Jitter", "Loss", "Duplicates")
	for i := 0; i < len(k.best.Faults); i++ {
		zero(func(s *Scenario) any { return &s.Faults[i] }, "Breaks")
	}
	for i := 0; i < len(k.best.Loads); i++ {
		zero(func(s *Scenario) any { return &s.Loads[min(i, len(s.Loads)-1)] }, "From", "Zipf", "Keys", "Units")
	}
	return better
}

// round writes the times of faults with as few digits as will do: all together, then each alone.
func (k *shrinker) round() (better bool) {
	for _, unit := range []time.Duration{time.Second, 100 * time.Millisecond, 10 * time.Millisecond} {
		for only := -1; only < len(k.best.Faults); only++ {
			s := k.best.clone()
			for i := range s.Faults {
				if only < 0 || i == only {
					s.Faults[i].At = s.Faults[i].At.Truncate(unit) // not up, which may be beyond the end
				}
			}
			if !s.equal(k.best) && k.try(s) {
				better = true
				if only < 0 {
					return true
				}
			}
		}
	}
	return better
}

// repair drops the faults and loads that have become senseless, and says whether
// the rest is valid.
func (s *Scenario) repair() bool {
	s.sort()
	for range len(s.Faults) + len(s.Loads) + 1 {
		bad, hopeless := place{}, false
		s.check(func(at place, field, message string) {
			switch {
			case at.part != partFault && at.part != partLoad:
				hopeless = true
			case bad == place{} || at.part == partFault && bad.part == partFault && s.Faults[at.index].At < s.Faults[bad.index].At:
				bad = at // the first, as those after it may only follow from it
			}
		})
		switch {
		case hopeless:
			return false
		case bad.part == partFault:
			s.withoutFaults(bad.index, bad.index+1)
		case bad.part == partLoad:
			s.withoutLoads(bad.index, bad.index+1)
		default:
			return true
		}
	}
	return false
}

func (s *Scenario) withoutFaults(from, to int) { s.Faults = slices.Delete(s.Faults, from, to) }
func (s *Scenario) withoutLoads(from, to int)  { s.Loads = slices.Delete(s.Loads, from, to) }

func (s *Scenario) withoutLimits(from, to int) { s.Limits = slices.Delete(s.Limits, from, to) }

func (s *Scenario) withoutNodes(from, to int) {
	gone := s.all()[from:to]
	s.Nodes = slices.Delete(s.Nodes, from, to)
	drop := func(names *[]string) {
		*names = slices.DeleteFunc(*names, func(name string) bool { return slices.Contains(gone, name) })
	}
	for i := range s.Loads {
		drop(&s.Loads[i].From)
	}
	for i := range s.Faults {
		f := &s.Faults[i]
		drop(&f.Nodes)
		for j := range f.Sides {
			drop(&f.Sides[j])
		}
		f.Sides = slices.DeleteFunc(f.Sides, func(side []string) bool { return len(side) == 0 })
	}
}

// clone shares nothing with s.
func (s *Scenario) clone() *Scenario {
	c, text := new(Scenario), new(bytes.Buffer)
	if err := errors.Join(json.NewEncoder(text).Encode(s), json.NewDecoder(text).Decode(c)); err != nil {
		panic(err) // it has what JSON has
	}
	return c
}

func (s *Scenario) equal(o *Scenario) bool { return reflect.DeepEqual(s, o) }
