// Package ring gives every hash one owner among the members of a cluster, by
// consistent hashing: a join takes about 1/n of the hashes, all of them to the
// joiner, and a leave moves the leaver's alone.
//
// All nodes that know the same members build the same ring, whatever order
// they learned of them in.
//
// The package belongs to the engine of weir: what it exports may change in any release.
// Import weir instead.
package ring

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// pointsPerMember makes the busiest of 10 members own 1.07 of its fair share on
// average over clusters (one in eight is above 1.10), and of 100 members 1.13.
// It is part of what nodes agree on: two values in one cluster are two rings.
const pointsPerMember = 512

// Ring maps each hash to its owner. It is immutable, so that a view can be shared without
// a lock: a new one is built when the membership changes. Its bounds on load and on the
// steps of a search hold for hashes that are uniform over all 64 bits.
//
// Its methods are safe for concurrent use.
type Ring struct {
	members []string
	// points are sorted by hash, then by member. A member owns the hashes
	// after the point before its own, up to and including its own. Last stands
	// the first point once more, at the highest hash, so that no search runs
	// off the end.
	points []point
	// first holds for each value of a hash's top bits the index of the first
	// point that is not below all such hashes. There are more values than
	// points, so the owner's point is there or a step or two further.
	first []uint32
	shift uint // of a hash, to its top bits
}

type point struct {
	hash   uint64
	member int32
}

// New builds the ring of these members, whatever their order. Names must be
// distinct: one that is repeated counts once. It keeps no reference to members.
func New(members []string) *Ring {
	names := slices.Compact(slices.Sorted(slices.Values(members)))

	n := len(names) * pointsPerMember
	top := 0
	if n > 0 {
		top = bits.Len(uint(n))
	}
	r := &Ring{
		members: names,
		points:  make([]point, n+1),
		first:   make([]uint32, 1<<top+1),
		shift:   uint(64 - top),
	}

	// A counting sort by the top bits leaves in first what lookups want.
	unsorted := make([]point, 0, n)
	var buf []byte
	for m, name := range names {
		for i := range uint32(pointsPerMember) {
			buf = appendPoint(buf[:0], name, i)
			h := xxhash.Sum64(buf)
			unsorted = append(unsorted, point{h, int32(m)})
			r.first[h>>r.shift+1]++
		}
	}
	for i := 1; i < len(r.first); i++ {
		r.first[i] += r.first[i-1]
	}
	next := slices.Clone(r.first)
	for _, p := range unsorted {
		at := &next[p.hash>>r.shift]
		r.points[*at] = p
		*at++
	}
	for i := range len(r.first) - 1 {
		slices.SortFunc(r.points[r.first[i]:r.first[i+1]], func(a, b point) int {
			return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.member, b.member))
		})
	}

	r.points[n] = point{math.MaxUint64, -1}
	if n > 0 {
		r.points[n].member = r.points[0].member
	}
	return r
}

// appendPoint encodes a member's i-th point. The index comes first, in a fixed
// width, so no two (member, index) pairs have the same encoding.
func appendPoint(dst []byte, member string, i uint32) []byte {
	dst = binary.BigEndian.AppendUint32(dst, i)
	return append(dst, member...)
}

// Members are the ring's members, sorted by name. Not to be modified.
func (r *Ring) Members() []string { return r.members }

// search is the index of the first point at or after hash.
func (r *Ring) search(hash uint64) uint32 {
	i := r.first[hash>>r.shift]
	for r.points[i].hash < hash {
		i++
	}
	return i
}

// Owner is the index in Members of the one that owns hash, -1 if there is none.
func (r *Ring) Owner(hash uint64) int { return int(r.points[r.search(hash)].member) }

// Order appends to dst the indexes of all members in ring order from hash: the
// owner first, then each next distinct member. It stops after max of them.
// Without its owner a ring gives the hash to the second of them, without both
// to the third, and so on.
//
// It allocates nothing if dst has room, for up to 1,024 members.
func (r *Ring) Order(dst []int, hash uint64, max int) []int {
	want := min(max, len(r.members))
	if want <= 0 {
		return dst
	}
	var room [16]uint64
	seen := room[:]
	if need := (len(r.members) + 63) / 64; need > len(seen) {
		seen = make([]uint64, need)
	}
	// The last point repeats the first, which costs nothing here.
	for i := int(r.search(hash)); ; i++ {
		if i == len(r.points) {
			i = 0
		}
		m := r.points[i].member
		if bit := uint64(1) << (m % 64); seen[m/64]&bit == 0 {
			seen[m/64] |= bit
			dst = append(dst, int(m))
			if want--; want == 0 {
				return dst
			}
		}
	}
}

// Arcs calls visit with each arc between two points: the hashes from first to
// last, both included, for which Order is the same. Together they are all
// hashes, in ascending order. A ring without members has none.
func (r *Ring) Arcs(visit func(first, last uint64)) {
	if len(r.members) == 0 {
		return
	}
	first := uint64(0)
	for i, p := range r.points {
		if i > 0 && p.hash == r.points[i-1].hash {
			continue // only the first of equal points owns anything
		}
		visit(first, p.hash)
		if p.hash == math.MaxUint64 {
			return
		}
		first = p.hash + 1
	}
}
