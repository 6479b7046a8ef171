package countsync

import (
	"encoding/binary"
	"maps"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Regions are those that share Global limits, and the parts with which they begin.
// It is immutable.
type Regions struct {
	names []string // ascending
	ends  []uint64 // the sum of the weights up to and with each
	self  int
	print uint64 // the same where the names and weights are
}

// maxWeights bounds the sum of the weights, so that no product overflows.
const maxWeights = 1 << 32

// NewRegions are this region and the others, whose weights say how a limit is
// shared out at first. A weight below zero is none. All weigh the same if weights
// are not of these very regions, or sum to nothing or to more than 2³².
func NewRegions(self string, others []string, weights map[string]int64) *Regions {
	names := slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(others), self))))
	r := &Regions{names: names, self: slices.Index(names, self)}
	var total uint64
	for _, w := range weights {
		total += uint64(min(max(0, w), maxWeights+1))
	}
	if !slices.Equal(slices.Sorted(maps.Keys(weights)), names) || total == 0 || total > maxWeights {
		weights = nil
	}
	var sum uint64
	b := []byte{}
	for _, name := range names {
		w := uint64(1)
		if weights != nil {
			w = uint64(max(0, weights[name]))
		}
		sum += w
		r.ends = append(r.ends, sum)
		b = binary.AppendUvarint(b, uint64(len(name)))
		b = append(b, name...)
		b = binary.AppendUvarint(b, w)
	}
	r.print = xxhash.Sum64(b)
	return r
}

// start is the part of a whole with which a region begins. All of them sum to it.
func (r *Regions) start(whole int64, region int) int64 {
	total := r.ends[len(r.ends)-1]
	upTo := func(end uint64) int64 {
		hi, lo := bits.Mul64(uint64(max(0, whole)), end)
		q, _ := bits.Div64(hi, lo, total)
		return int64(q)
	}
	if region == 0 {
		return upTo(r.ends[0])
	}
	return upTo(r.ends[region]) - upTo(r.ends[region-1])
}

// index is a region's, -1 if it is none of them or this one.
func (r *Regions) index(name string) int {
	if i := slices.Index(r.names, name); i != r.self {
		return i
	}
	return -1
}
