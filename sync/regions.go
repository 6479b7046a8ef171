package countsync

import (
	"encoding/binary"
	"maps"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Regions contains the regions that share Global limits, with their initial parts. It is
// immutable.
type Regions struct {
	names []string // names of the regions, in ascending order
	ends  []uint64 // sum of the weights up to and including each region
	self  int
	print uint64 // hash of the names and weights
}

// maxWeights is the maximum sum of the weights, so that no product overflows.
const maxWeights = 1 << 32

// NewRegions returns this region and the other regions. The weights determine the initial part of
// each region in a limit. A negative weight counts as 0. If the map weights does not contain exactly
// these regions, or if the weights sum to 0 or to more than 2³², all regions have the same weight.
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

// start returns the initial part of a region, if the limit has as many units as the argument whole. The
// initial parts of all regions sum to whole.
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

// index returns the index of a region, or -1 if name is this region or unknown.
func (r *Regions) index(name string) int {
	if i := slices.Index(r.names, name); i != r.self {
		return i
	}
	return -1
}
