package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/spelling"
)

// phase is what each place was granted while the same nodes heard each other. Times in
// which the same ones do are one.
type phase struct {
	when    string   // whole or split
	places  []string // what each is called
	lasted  time.Duration
	offered int64
	units   []int64 // of each place
}

// phases sums up the run, of the key that was asked most, in the order in which each
// state of the network came first.
func (a *asks) phases(lasts time.Duration) (all []phase) {
	if a == nil {
		return nil
	}
	index := make(map[string]int)
	of := func(at time.Duration) *phase {
		when, places := a.state(at)
		name := when + ": " + strings.Join(places, "|")
		i, known := index[name]
		if !known {
			i = len(all)
			index[name] = i
			all = append(all, phase{when: when, places: places, units: make([]int64, len(places))})
		}
		return &all[i]
	}
	moments := a.moments(lasts)
	for i, at := range moments[:len(moments)-1] {
		of(at).lasted += moments[i+1] - at
	}
	for _, i := range a.of {
		c := &a.checks[i]
		if c.Asked >= lasts {
			continue
		}
		g := of(c.Asked)
		g.offered += c.Units
		if c.Allowed && c.Err == "" {
			g.units[min(a.place(c.Asked, c.Node), len(g.units)-1)] += c.Units
		}
	}
	return all
}

// moments are when the state may change, with the beginning and the end.
func (a *asks) moments(lasts time.Duration) []time.Duration {
	all := []time.Duration{0}
	add := func(at time.Duration) {
		if last := all[len(all)-1]; at > last && at < lasts {
			all = append(all, at)
		}
	}
	if a.planet != nil {
		for _, s := range a.planet.torn {
			add(s.from)
			add(s.to)
		}
	} else {
		for _, e := range a.course.eras {
			add(e.from)
		}
	}
	return append(all, lasts)
}

// state is what the network is like at a time: whole or split, and into which places.
func (a *asks) state(at time.Duration) (when string, places []string) {
	if a.planet != nil {
		for _, s := range a.planet.torn {
			if at >= s.from && at < s.to {
				return "split", a.planet.names
			}
		}
		return "whole", a.planet.names
	}
	e := a.course.at(at)
	if e.sides <= 1 {
		return "whole", []string{"all nodes"}
	}
	return "split", e.names(a.course.scenario.Nodes)
}

// names are those of the sides: their nodes, those of most nodes first.
func (e *era) names(nodes []Node) []string {
	of := make([][]string, e.sides)
	for node, side := range e.side {
		if side >= 0 {
			place := e.rank(node)
			of[place] = append(of[place], nodes[node].Name)
		}
	}
	names := make([]string, e.sides)
	for i, side := range of {
		names[i] = named(side)
	}
	return names
}

// named is a side by its nodes, of many by the first and how many they are.
func named(side []string) string {
	if len(side) > 5 {
		return fmt.Sprintf("%s and %d more", side[0], len(side)-1)
	}
	return strings.Join(side, " ")
}

// grants prints what each side was granted of the limit, over all the time in which the
// network was in one state.
func grants(w io.Writer, r *trial) {
	a := r.mostAsked()
	all := a.phases(r.Scenario.Lasts)
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(w, "\nGranted of the limit, in units and as part of what it allows in that time:\n")
	for _, g := range all {
		limit := float64(a.l.Rate) * g.lasted.Seconds() / a.l.Per.Seconds()
		var sum int64
		var parts []string
		for i, place := range g.places {
			sum += g.units[i]
			parts = append(parts, fmt.Sprintf("%s %d (%.0f %%)", place, g.units[i], 100*float64(g.units[i])/limit))
		}
		if len(parts) > 1 {
			parts = append(parts, fmt.Sprintf("together %d (%.0f %%)", sum, 100*float64(sum)/limit))
		}
		first := fmt.Sprintf("%s for %s: ", g.when, spelling.Duration(g.lasted))
		wrap(w, fmt.Sprintf("%-18s", first), strings.Repeat(" ", 18), fmt.Sprintf("%s, of %d asked for", strings.Join(parts, ", "), g.offered))
	}
}
