package main

import (
	"math/bits"
	"time"
)

// fineness is how many bits of a time a histogram tells apart below the highest: a
// quantile is at most 1/32 above what it was.
const fineness = 5

// histogram counts times by their logarithm. It allocates nothing, and its zero value is
// empty.
type histogram [64 << fineness]uint32

// binOf is the bin of a time. Below 1<<fineness each has its own.
func binOf(d time.Duration) int {
	v := uint64(max(0, d))
	shift := max(0, bits.Len64(v)-fineness-1)
	return shift<<fineness + int(v>>shift)
}

// topOf is the longest time of a bin.
func topOf(bin int) time.Duration {
	if bin < 2<<fineness {
		return time.Duration(bin)
	}
	shift := bin>>fineness - 1
	return time.Duration((uint64(bin)-uint64(shift)<<fineness+1)<<shift - 1)
}

func (h *histogram) add(d time.Duration) { h[binOf(d)]++ }

func (h *histogram) merge(o *histogram) {
	for i, n := range o {
		h[i] += n
	}
}

func (h *histogram) count() (n uint64) {
	for _, in := range h {
		n += uint64(in)
	}
	return n
}

// quantile is the time that a part q of what was added does not exceed, or zero if
// nothing was added.
func (h *histogram) quantile(q float64) time.Duration {
	n := h.count()
	if n == 0 {
		return 0
	}
	rank := min(n-1, uint64(q*float64(n)))
	for bin, in := range h {
		if rank < uint64(in) {
			return topOf(bin)
		}
		rank -= uint64(in)
	}
	panic("bench: a histogram has fewer times than it counts")
}
