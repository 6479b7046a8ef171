package main

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/weir-go/weir"
)

// steady is the windows of Per that lie in a split in which nothing changes: c = 0,
// and no crash, no join, no timeout, no step of a clock. The bounds hold there, too;
// this says how near it comes to them.
type steady struct {
	Windows  int
	Units, L int64 // of the window that holds most of its limit
}

func (s *steady) add(o steady) {
	if s.L == 0 || float64(o.Units)*float64(s.L) > float64(s.Units)*float64(o.L) {
		s.Units, s.L = o.Units, o.L
	}
	s.Windows += o.Windows
}

// steadySplits are those of a run, by policy. Those of FailOpen have no bound that
// says much, and a Global limit's sides are its regions.
func (r *trial) steadySplits() map[weir.PartitionPolicy]steady {
	all := make(map[weir.PartitionPolicy]steady)
	for _, a := range r.asks {
		if a.planet != nil || a.l.Partition == weir.FailOpen {
			continue
		}
		stretches := a.stretches()
		a.windows(a.l.Per, func(w window) {
			s := stretches.next(w.from)
			if undisturbed := (situation{sides: s.sides, nodes: s.nodes}); s.sides > 1 && *s == undisturbed {
				sum := all[a.l.Partition]
				sum.add(steady{1, w.units, healthy(a.l)})
				all[a.l.Partition] = sum
			}
		})
	}
	return all
}

// tellSteady says what was admitted at most, as a part of L.
func tellSteady(w io.Writer, all map[weir.PartitionPolicy]steady) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(w, "In a split in which nothing changes (c = 0), a window of Per held at most\n")
	for _, p := range slices.Sorted(maps.Keys(all)) {
		s := all[p]
		fmt.Fprintf(w, "%-14v  %.2f·L, in %d windows\n", p, float64(s.Units)/float64(s.L), s.Windows)
	}
}
