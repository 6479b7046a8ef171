package main

import (
	"fmt"
	"slices"
)

// tolerance is by how much a figure may be higher late than early: a part of it, and
// so much more.
type tolerance struct {
	name string
	unit int64 // that it is printed in
	of   func(*figures) int64
	part float64
	more int64
	why  string
}

const mib = 1 << 20

// tolerances are what the judge of growth holds each process to. They are far below
// what a leak comes to: a goroutine or a descriptor for each fault, check or connection
// is hundreds in ten minutes, and 1 KiB kept of each check 20 MiB a minute.
var tolerances = []tolerance{
	{"RSS, MiB", mib, func(f *figures) int64 { return f.RSS }, 0.20, 8 * mib, "the allocator keeps what the busiest moment so far has taken"},
	{"heap, MiB", mib, func(f *figures) int64 { return f.Heap }, 0.10, 2 * mib, "the keys of lasting limits, and tables that double"},
	{"goroutines", 1, func(f *figures) int64 { return f.Goroutines }, 0, 8, "gossip that is under way"},
	{"files", 1, func(f *figures) int64 { return f.Files }, 0, 8, "gossip that is under way"},
	{"keys", 1, func(f *figures) int64 { return f.Keys }, 0.10, 500, "the keys of lasting limits"},
}

// growth is a figure of one process, early in the run and late.
type growth struct {
	tolerance   *tolerance
	early, late int64 // medians
	most        int64 // that late may be
	problem     string
}

// fewest is how many times the figures have to have been taken.
const fewest = 4

// judgeGrowth compares the medians of the first third of a process' figures and of the
// last third. A median, as one figure may be taken while something is under way.
func judgeGrowth(series []figures) (all []growth) {
	if len(series) < fewest {
		return []growth{{tolerance: &tolerances[0], problem: fmt.Sprintf("its figures were taken %d times: at least %d have to be, so let it run longer", len(series), fewest)}}
	}
	third := max(2, len(series)/3)
	for i := range tolerances {
		t := &tolerances[i]
		var values []int64
		for j := range series {
			values = append(values, t.of(&series[j]))
		}
		if slices.Contains(values, -1) {
			continue // this system does not say
		}
		g := growth{tolerance: t, early: median(values[:third]), late: median(values[len(values)-third:])}
		g.most = g.early + int64(t.part*float64(g.early)) + t.more
		if g.late > g.most {
			g.problem = fmt.Sprintf("%s grew from %d to %d: %d at most", t.name, g.early/t.unit, g.late/t.unit, g.most/t.unit)
		}
		all = append(all, g)
	}
	return all
}

func median(values []int64) int64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
