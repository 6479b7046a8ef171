// Package ring implements consistent hashing: every hash has one owner among the members of a
// cluster. When a member joins, about 1/n of the hashes move, all of them to the new member.
// When a member leaves, no other hashes move than those of this member.
//
// All nodes that know the same members build the same ring. The order in which a node learned
// of the members does not matter.
//
// The package is part of the engine of weir. Its API may change in any release. Import weir
// instead.
package ring

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// pointsPerMember is the number of points of each member. With 512 points, the busiest of 10
// members owns 1.07 of its fair share on average over clusters (1.10 is exceeded in one
// cluster of eight), and the busiest of 100 members owns 1.13. All nodes of a cluster must
// use the same value, because two values produce two different rings.
const pointsPerMember = 512

// A Ring maps each hash to the member that owns it. A Ring is immutable, so a view can be
// shared without a lock. A new Ring is built when the membership changes. The bounds on load
// and on the number of search steps assume that hashes are uniform over all 64 bits.
//
// All methods are safe for concurrent use.
type Ring struct {
	members []string
	// points are sorted by hash, then by member. A member owns the hashes after the previous
	// point, up to and including the point of the member. The last element repeats the first
	// point at the highest hash, so that a search never runs past the end.
	points []point
	// first holds, for each value of the top bits of a hash, the index of the first point
	// that is at or after the lowest hash with these bits. There are more values than points,
	// so the point of the owner is usually at this index or one or two steps after it.
	first []uint32
	shift uint // the number of low bits that first ignores
}

type point struct {
	hash   uint64
	member int32
}

// New builds the ring of the given members, in any order. Duplicate names are ignored. New
// does not retain members.
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

	// This is a counting sort by the top bits. It also computes the indexes in first.
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

// appendPoint appends the encoding of the i-th point of a member to dst. The index comes
// first and has a fixed width, so no two pairs of member and index have the same encoding.
func appendPoint(dst []byte, member string, i uint32) []byte {
	dst = binary.BigEndian.AppendUint32(dst, i)
	return append(dst, member...)
}

// Members returns the members of the ring, sorted by name. The caller must not modify the
// slice.
func (r *Ring) Members() []string { return r.members }

// search returns the index of the first point at or after hash.
func (r *Ring) search(hash uint64) uint32 {
	i := r.first[hash>>r.shift]
	for r.points[i].hash < hash {
		i++
	}
	return i
}

// Owner returns the index in Members of the owner of hash, or -1 if the ring has no members.
func (r *Ring) Owner(hash uint64) int { return int(r.points[r.search(hash)].member) }

// Order appends to dst the indexes of members in ring order from hash: the owner first, then
// each next distinct member. It appends at most max indexes. A ring without the owner assigns
// the hash to the second of these members, a ring without both to the third, and so on.
//
// Order does not allocate if dst has room and the ring has at most 1,024 members.
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
	// The last point repeats the member of the first point, so i need not skip it.
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

// Arcs calls visit for each arc between two points. An arc is the hashes from first to last,
// inclusive, and Order returns the same members for all of them. The arcs cover all hashes,
// in ascending order. If the ring has no members, visit is not called.
func (r *Ring) Arcs(visit func(first, last uint64)) {
	if len(r.members) == 0 {
		return
	}
	first := uint64(0)
	for i, p := range r.points {
		if i > 0 && p.hash == r.points[i-1].hash {
			continue // the points after the first with the same hash own no hashes
		}
		visit(first, p.hash)
		if p.hash == math.MaxUint64 {
			return
		}
		first = p.hash + 1
	}
}
