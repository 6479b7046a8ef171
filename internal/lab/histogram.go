package lab

import (
	"math/bits"
	"time"
)

// fineness is the number of bits that a Histogram distinguishes below the highest bit.
const fineness = 5

// Histogram counts times by their logarithm: a quantile is at most 1/32 above the exact
// quantile. A Histogram does not allocate memory, and the zero value is empty. A reply of
// a Service may contain a Histogram. A Histogram is not safe for concurrent use.
type Histogram struct {
	Counts [64 << fineness]uint32 // the number of times in each bin
	Total  int                    // the sum of Counts
	Most   time.Duration          // the longest time
}

// Add counts a time. A negative time counts as zero.
func (h *Histogram) Add(d time.Duration) {
	h.Counts[binOf(d)]++
	h.Total++
	h.Most = max(h.Most, d)
}

// Merge adds the counts of another Histogram.
func (h *Histogram) Merge(o *Histogram) {
	for i, n := range o.Counts {
		h.Counts[i] += n
	}
	h.Total += o.Total
	h.Most = max(h.Most, o.Most)
}

// Quantile returns a time that the part q of the counted times does not exceed, with q
// from 0 to 1. Quantile returns zero if no time was counted.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := int(q * float64(h.Total))
	for bin, n := range h.Counts {
		if rank -= int(n); rank < 0 {
			return min(topOf(bin), h.Most)
		}
	}
	return h.Most
}

// binOf returns the bin of a time. Each time below 2<<fineness ns has its own bin.
func binOf(d time.Duration) int {
	v := uint64(max(0, d))
	shift := max(0, bits.Len64(v)-fineness-1)
	return shift<<fineness + int(v>>shift)
}

// topOf returns the longest time of a bin.
func topOf(bin int) time.Duration {
	if bin < 2<<fineness {
		return time.Duration(bin)
	}
	shift := bin>>fineness - 1
	return time.Duration((uint64(bin)-uint64(shift)<<fineness+1)<<shift - 1)
}
