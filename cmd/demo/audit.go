package main

import (
	"math"
	"slices"
	"time"
)

// admission is one request that was admitted: at some moment from from to to,
// in Unix nanoseconds of the machine's clock, which all gateways count by.
type admission struct{ from, to int64 }

// span is a time during which, or a window that holds some of which, a client
// may get more than its limit. Both ends belong to it.
type span struct{ from, to int64 }

const (
	ever  = math.MinInt64
	never = math.MaxInt64
)

// busiest is the most admissions that one half-open window of per certainly
// held. An admission whose moment is known only to lie on both sides of a
// window's end is not held against it, so what this finds did happen.
func busiest(admissions []admission, per time.Duration) int {
	sorted := slices.Clone(admissions)
	slices.SortFunc(sorted, func(a, b admission) int { return compare(a.from, b.from) })
	most := 0
	// The fullest window can always be moved to begin with an admission.
	for i, first := range sorted {
		end, held := first.from+int64(per), 0
		for _, a := range sorted[i:] {
			if a.from >= end {
				break
			}
			if a.to < end {
				held++
			}
		}
		most = max(most, held)
	}
	return most
}

func compare(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// healthy is busiest over the windows that hold nothing of the faults.
func healthy(admissions []admission, faults []span, per time.Duration) int {
	most := 0
	for _, calm := range between(faults, per) {
		var within []admission
		for _, a := range admissions {
			if a.from >= calm.from && a.to <= calm.to {
				within = append(within, a)
			}
		}
		most = max(most, busiest(within, per))
	}
	return most
}

// between is the times outside faults that have room for a window.
func between(faults []span, per time.Duration) []span {
	sorted := slices.Clone(faults)
	slices.SortFunc(sorted, func(a, b span) int { return compare(a.from, b.from) })
	var calm []span
	begin := int64(ever)
	add := func(end int64) {
		if begin == ever || end == never || end-begin+1 >= int64(per) {
			calm = append(calm, span{begin, end})
		}
	}
	for _, f := range sorted {
		if begin < f.from {
			add(f.from - 1)
		}
		begin = max(begin, f.to+1)
	}
	add(never)
	return calm
}
