package countsync

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// Range contains the hashes from First to Last, inclusive. It is empty if First is above Last.
type Range struct{ First, Last uint64 }

// Ranges is a set of hashes, in the form of sorted ranges that do not overlap and are not adjacent.
// It is immutable, so it may be shared. Nil is the empty set.
type Ranges []Range

// All returns the set of all hashes.
func All() Ranges { return Ranges{{0, math.MaxUint64}} }

// NewRanges returns the set of the hashes in any of rs. The ranges may overlap and may be in any
// order.
func NewRanges(rs ...Range) Ranges {
	sorted := make([]Range, 0, len(rs))
	for _, r := range rs {
		if r.First <= r.Last {
			sorted = append(sorted, r)
		}
	}
	slices.SortFunc(sorted, func(a, b Range) int { return cmp.Compare(a.First, b.First) })
	return join(sorted)
}

// join merges, in place, ranges that are sorted by First but may overlap or touch.
func join(sorted []Range) Ranges {
	var out Ranges = sorted[:0]
	for _, r := range sorted {
		if n := len(out); n > 0 && (r.First <= out[n-1].Last || r.First-1 == out[n-1].Last) {
			out[n-1].Last = max(out[n-1].Last, r.Last)
			continue
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// Contains reports whether hash is in the set. Contains uses a binary search.
func (r Ranges) Contains(hash uint64) bool {
	i := sort.Search(len(r), func(i int) bool { return r[i].Last >= hash })
	return i < len(r) && r[i].First <= hash
}

// Union returns the hashes in r or in o.
func (r Ranges) Union(o Ranges) Ranges {
	if len(r) == 0 {
		return o
	}
	if len(o) == 0 {
		return r
	}
	return NewRanges(append(slices.Clone(r), o...)...)
}

// Intersect returns the hashes in both r and o.
func (r Ranges) Intersect(o Ranges) Ranges {
	var out Ranges
	for i, j := 0, 0; i < len(r) && j < len(o); {
		if first, last := max(r[i].First, o[j].First), min(r[i].Last, o[j].Last); first <= last {
			if out == nil {
				out = make(Ranges, 0, len(r)-i+len(o)-j-1)
			}
			out = append(out, Range{first, last})
		}
		if r[i].Last < o[j].Last {
			i++
		} else {
			j++
		}
	}
	return out
}

// Minus returns the hashes in r that are not in o.
func (r Ranges) Minus(o Ranges) Ranges {
	if len(o) == 0 {
		return r
	}
	var out Ranges
	add := func(first, last uint64) {
		if out == nil {
			out = make(Ranges, 0, len(r)+len(o))
		}
		out = append(out, Range{first, last})
	}
	for _, x := range r {
		for len(o) > 0 && o[0].Last < x.First {
			o = o[1:]
		}
		for len(o) > 0 && o[0].Last < x.Last { // the next range may also overlap the rest of x
			if o[0].First > x.First {
				add(x.First, o[0].First-1)
			}
			x.First = o[0].Last + 1
			o = o[1:]
		}
		switch {
		case len(o) == 0 || o[0].First > x.Last:
			add(x.First, x.Last)
		case o[0].First > x.First:
			add(x.First, o[0].First-1)
		}
	}
	return out
}

// Equal reports whether r and o are the same set.
func (r Ranges) Equal(o Ranges) bool { return slices.Equal(r, o) }
