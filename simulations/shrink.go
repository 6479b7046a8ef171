package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	countsync "github.com/weir-go/weir/sync"
	"github.com/weir-go/weir/weirtest"
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
		k.best.About = "Shrunk from " + s.Name + ": it breaks, and with anything less that was tried it does not."
		if k.best.Gossip {
			k.best.About = "Shrunk from " + s.Name + ": it broke, and with anything less that was tried it did not. Its runs differ."
		}
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
	change := func(do func(s *Scenario)) {
		s := k.best.clone()
		do(s)
		if !s.equal(k.best) {
			better = k.try(s) || better
		}
	}
	change(func(s *Scenario) { s.Gossip = false }) // first: then its run replays
	change(func(s *Scenario) { s.Replicas, s.Expect, s.Timeout, s.Forget = 0, 0, 0, 0 })
	change(func(s *Scenario) { s.Replicas = 0 })
	change(func(s *Scenario) { s.Expect = 0 })
	change(func(s *Scenario) { s.Timeout = 0 })
	change(func(s *Scenario) { s.Forget = 0 })
	change(func(s *Scenario) { s.MaxKeys = 0 })
	change(func(s *Scenario) { s.Network = weirtest.Link{Latency: defaultLatency} })
	change(func(s *Scenario) { s.WAN = weirtest.Link{} })
	change(func(s *Scenario) { s.RegionShares = nil })
	change(func(s *Scenario) { s.Hot = 0 })
	change(func(s *Scenario) { s.Shared = false })
	change(func(s *Scenario) { s.Snapshots, s.Shared = 0, false })
	change(func(s *Scenario) { s.Caps = countsync.Caps{} })
	_, lower := caps(&k.best.Caps)
	for i := range lower {
		change(func(s *Scenario) {
			_, fields := caps(&s.Caps)
			*fields[i] = 0
		})
	}
	change(func(s *Scenario) {
		for i := range s.Nodes {
			s.Nodes[i].Region = ""
		}
	})
	for i := range k.best.Faults {
		change(func(s *Scenario) {
			if f := &s.Faults[i]; f.Kind == FaultSlow && f.Pauses > 0 {
				f.Every = defaultEvery
			}
		})
		change(func(s *Scenario) { s.Faults[i].Breaks = false })
	}
	for i := range k.best.Loads {
		change(func(s *Scenario) { s.Loads[i].From = nil })
		change(func(s *Scenario) { s.Loads[i].Keys, s.Loads[i].Zipf = 0, 0 })
		change(func(s *Scenario) { s.Loads[i].Units = 0 })
	}
	return better
}

// round writes times as few digits as will do: all together, then each alone.
func (k *shrinker) round() (better bool) {
	for _, unit := range []time.Duration{time.Second, 100 * time.Millisecond, 10 * time.Millisecond} {
		all := k.best.clone()
		for i := range all.Faults {
			all.Faults[i].roundTo(unit)
		}
		for i := range all.Loads {
			all.Loads[i].Begins = all.Loads[i].Begins.Truncate(unit)
		}
		for i := range all.Limits {
			if l := &all.Limits[i]; l.Per > 0 {
				l.Per = max(unit, l.Per.Truncate(unit))
			}
		}
		if !all.equal(k.best) && k.try(all) {
			return true
		}
		for i := range k.best.Faults {
			one := k.best.clone()
			if i < len(one.Faults) {
				one.Faults[i].roundTo(unit)
			}
			if !one.equal(k.best) {
				better = k.try(one) || better
			}
		}
	}
	return better
}

func (f *Fault) roundTo(unit time.Duration) {
	f.At = f.At.Truncate(unit) // not up, which may be beyond the end
	if by := f.By.Truncate(unit); by != 0 {
		f.By = by
	}
	if pauses := f.Pauses.Truncate(unit); pauses != 0 {
		f.Pauses = pauses
	}
	if every := f.Every.Truncate(unit); every > f.Pauses {
		f.Every = every
	}
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

// withoutLimits takes their loads with them.
func (s *Scenario) withoutLimits(from, to int) {
	for _, l := range s.Limits[from:to] {
		s.Loads = slices.DeleteFunc(s.Loads, func(o Load) bool { return o.Limit == l.Name })
	}
	s.Limits = slices.Delete(s.Limits, from, to)
}

// withoutNodes takes with them the faults that hit them alone.
func (s *Scenario) withoutNodes(from, to int) {
	gone := s.all()[from:to]
	s.Nodes = slices.Delete(s.Nodes, from, to)
	is := func(name string) bool { return slices.Contains(gone, name) }
	s.Loads = slices.DeleteFunc(s.Loads, func(l Load) bool {
		return len(l.From) > 0 && !slices.ContainsFunc(l.From, func(name string) bool { return !is(name) })
	})
	for i := range s.Loads {
		s.Loads[i].From = slices.DeleteFunc(s.Loads[i].From, is)
	}
	s.Faults = slices.DeleteFunc(s.Faults, func(f Fault) bool { return is(f.From) || is(f.To) })
	if regions := s.regions(); len(s.RegionShares) > 0 {
		maps.DeleteFunc(s.RegionShares, func(name string, _ int64) bool { return !slices.Contains(regions, name) })
	}
	for i := range s.Faults {
		f := &s.Faults[i]
		f.Nodes = slices.DeleteFunc(f.Nodes, is)
		for j := range f.Sides {
			f.Sides[j] = slices.DeleteFunc(f.Sides[j], is)
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
