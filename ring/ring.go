// Package ring implements consistent hashing: every hash has one owner among the members of a
// cluster. When a member joins, about 1/n of the hashes move, all of them to the new member.
// When a member leaves, only the hashes of this member move.
//
// All nodes that know the same members build the same ring. The order in which a node learned
// of the members does not matter.
//
// The package is part of the engine of weir. Its API may change in any release. Import weir
// instead.
package ring

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// pointsPerMember is the number of points of each member. With 512 points, the busiest of 10
// members owns 1.07 of its fair share on average over clusters (1.10 is exceeded in one
// cluster of eight), and the busiest of 100 members owns 1.13. All nodes of a cluster must
// use the same value, because two values produce two different rings.
const pointsPerMember = 512

// A Ring maps each hash to the member that owns it. A Ring is immutable, so a view can be
// shared without a lock. The bounds on load and on the number of search steps assume that
// hashes are uniform over all 64 bits.
//
// Rings share pages (see ReplaceMembers), so a page is never modified. A point refers to its
// member by a slot, because the index of a member changes when another member joins.
//
// All methods are safe for concurrent use.
type Ring struct {
	members []string
	slots   []int32 // the slot of each member in members
	index   []int32 // indexed by slot: the index in members, or -1 if no member has the slot
	// pages hold the points. Each page holds the points of an equal part of all hashes, sorted by
	// hash, then by the name of the member. A member owns the hashes after the previous point, up to
	// and including the point of the member.
	pages []page
	shift uint // the page of a hash has the index hash>>shift
	once  sync.Once
	parts map[string]float64 // computed by the first call of Parts, and never modified
}

// bucketBits is the binary logarithm of the number of buckets of a page.
const bucketBits = 4

// A page divides its hashes into equal buckets, so that a search compares one or two points.
type page struct {
	points []point
	// first[b] is the index of the first point that is not before bucket b. For an index above 255, which
	// does not fit, it is 255: a search continues from that point.
	first [1 << bucketBits]uint8
}

type point struct {
	hash uint64
	slot int32
}

// position identifies a point: the index of its page, and the index in this page.
type position struct{ page, at int }

// pagesOf returns the binary logarithm of the number of pages for the given number of
// members. A page has 8 to 16 points on average.
func pagesOf(members int) int { return bits.Len(uint(members*pointsPerMember)>>3) - 1 }

// New builds the ring of the given members, in any order. Duplicate names are ignored. New
// does not retain members.
func New(members []string) *Ring {
	names := slices.Compact(slices.Sorted(slices.Values(members)))
	r := &Ring{members: names, slots: make([]int32, len(names))}
	if len(names) == 0 {
		return r
	}
	top := pagesOf(len(names))
	r.pages, r.shift = make([]page, 1<<top), uint(64-top)
	unsorted := make([]point, 0, len(names)*pointsPerMember)
	sizes := make([]int, len(r.pages))
	for slot, name := range names {
		r.slots[slot] = int32(slot)
		for _, hash := range pointsOf(name) {
			unsorted = append(unsorted, point{hash, int32(slot)})
			sizes[hash>>r.shift]++
		}
	}
	r.index = slices.Clone(r.slots)
	sorted := make([]point, len(unsorted))
	for i, size := range sizes {
		r.pages[i].points, sorted = sorted[:0:size], sorted[size:]
	}
	for _, p := range unsorted {
		at := &r.pages[p.hash>>r.shift].points
		i := r.place(*at, p.hash, r.members[p.slot])
		*at = (*at)[:len(*at)+1]
		copy((*at)[i+1:], (*at)[i:])
		(*at)[i] = p
	}
	for i := range r.pages {
		r.pages[i] = r.newPage(r.pages[i].points)
	}
	return r
}

// ReplaceMembers returns the ring of the given members, whose names must be sorted and
// distinct. The result is equivalent to that of New. The pages without a change are shared
// with r, so nearly all of the time depends on the number of members that join or leave.
func (r *Ring) ReplaceMembers(members []string) *Ring {
	gone, joined := difference(r.members, members), difference(members, r.members)
	switch {
	case len(gone)+len(joined) == 0:
		return r
	case len(r.members) == 0 || 2*(len(gone)+len(joined)) > len(members) || !r.fits(len(members)):
		return New(members)
	}
	next := &Ring{members: slices.Clone(members), index: slices.Clone(r.index), pages: slices.Clone(r.pages), shift: r.shift}
	for _, name := range gone {
		i, _ := slices.BinarySearch(r.members, name)
		slot := r.slots[i]
		next.index[slot] = -1
		for _, hash := range pointsOf(name) {
			at := &next.pages[hash>>next.shift]
			i := slices.Index(at.points, point{hash, slot})
			*at = next.newPage(slices.Concat(at.points[:i], at.points[i+1:]))
		}
	}
	next.assignSlots(r)
	for _, name := range joined {
		i, _ := slices.BinarySearch(next.members, name)
		for _, hash := range pointsOf(name) {
			at := &next.pages[hash>>next.shift]
			i, p := next.place(at.points, hash, name), point{hash, next.slots[i]}
			*at = next.newPage(slices.Concat(at.points[:i], []point{p}, at.points[i:]))
		}
	}
	return next
}

// newPage returns the page with the given points, which must be sorted.
func (r *Ring) newPage(points []point) page {
	p, i := page{points: points}, 0
	for bucket := range p.first {
		for i < len(points) && i < math.MaxUint8 && r.bucketOf(points[i].hash) < bucket {
			i++
		}
		p.first[bucket] = uint8(i)
	}
	return p
}

// fits reports whether the number of pages is suitable for the given number of members.
func (r *Ring) fits(members int) bool {
	most := 64 - int(r.shift)
	return members > 0 && pagesOf(members) >= most-1 && pagesOf(members) <= most+1
}

// assignSlots assigns to each member its slot in the previous ring (the argument
// before), or a free slot.
func (r *Ring) assignSlots(before *Ring) {
	r.slots = make([]int32, len(r.members))
	free := 0
	for i, name := range r.members {
		at, stays := slices.BinarySearch(before.members, name)
		if stays {
			r.slots[i] = before.slots[at]
			r.index[r.slots[i]] = int32(i)
			continue
		}
		for free < len(r.index) && r.index[free] >= 0 {
			free++
		}
		if free == len(r.index) {
			r.index = append(r.index, 0)
		}
		r.slots[i], r.index[free] = int32(free), int32(i)
	}
}

// difference returns the names in a that are not in b. Both are sorted.
func difference(a, b []string) (names []string) {
	for _, name := range a {
		for len(b) > 0 && b[0] < name {
			b = b[1:]
		}
		if len(b) == 0 || b[0] != name {
			names = append(names, name)
		}
	}
	return names
}

// pointsOf returns the hashes of the points of a member.
func pointsOf(name string) *[pointsPerMember]uint64 {
	var points [pointsPerMember]uint64
	var buf []byte
	for i := range points {
		buf = appendPoint(buf[:0], name, uint32(i))
		points[i] = xxhash.Sum64(buf)
	}
	return &points
}

// appendPoint appends the encoding of the i-th point of a member to dst. The index comes
// first and has a fixed width, so no two pairs of member and index have the same encoding.
func appendPoint(dst []byte, member string, i uint32) []byte {
	dst = binary.BigEndian.AppendUint32(dst, i)
	return append(dst, member...)
}

// place returns the index at which a point of the named member belongs among the points of a page.
func (r *Ring) place(p []point, hash uint64, name string) int {
	i := len(p)
	for i > 0 && (p[i-1].hash > hash || p[i-1].hash == hash && r.nameOf(p[i-1]) > name) {
		i--
	}
	return i
}

func (r *Ring) nameOf(p point) string { return r.members[r.index[p.slot]] }

// Members returns the members of the ring, sorted by name. The caller must not modify the
// slice.
func (r *Ring) Members() []string { return r.members }

// search returns the position of the first point at or after hash, in the order of the ring. The
// ring must have members.
func (r *Ring) search(hash uint64) position {
	i := int(hash >> r.shift)
	p := &r.pages[i]
	for at := int(p.first[r.bucketOf(hash)]); at < len(p.points); at++ {
		if p.points[at].hash >= hash {
			return position{i, at}
		}
	}
	return r.skip(position{i + 1, 0})
}

// bucketOf returns the bucket of a hash in its page.
func (r *Ring) bucketOf(hash uint64) int {
	return int(hash >> (r.shift - bucketBits) % (1 << bucketBits))
}

// skip returns the first position from p on that has a point.
func (r *Ring) skip(p position) position {
	for {
		if p.page == len(r.pages) {
			p.page = 0
		}
		if p.at < len(r.pages[p.page].points) {
			return p
		}
		p = position{p.page + 1, 0}
	}
}

// nextPosition returns the position of the point after p.
func (r *Ring) nextPosition(p position) position {
	if p.at++; p.at < len(r.pages[p.page].points) {
		return p
	}
	return r.skip(position{p.page + 1, 0})
}

func (r *Ring) previousPosition(p position) position {
	for p.at == 0 {
		if p.page == 0 {
			p.page = len(r.pages)
		}
		p.page--
		p.at = len(r.pages[p.page].points)
	}
	return position{p.page, p.at - 1}
}

func (r *Ring) point(p position) point { return r.pages[p.page].points[p.at] }

// Owner returns the index in Members of the owner of hash, or -1 if the ring has no members.
func (r *Ring) Owner(hash uint64) int {
	if len(r.pages) == 0 {
		return -1
	}
	return int(r.index[r.point(r.search(hash)).slot])
}

// fewMembers is the maximum number of wanted members for which Order compares each member with
// all previous members.
const fewMembers = 16

// Order appends to dst the indexes of members in ring order from hash: the owner first, then
// each next distinct member. It appends at most max indexes. A ring without the owner assigns
// the hash to the second of these members, a ring without both to the third, and so on.
//
// Order does not allocate if dst has room and the ring has at most 4,096 members.
func (r *Ring) Order(dst []int, hash uint64, max int) []int {
	want := min(max, len(r.members))
	if want <= 0 {
		return dst
	}
	if want > fewMembers {
		return r.orderMany(dst, hash, want)
	}
	begin := len(dst)
	for at := r.search(hash); ; at = r.nextPosition(at) {
		if m := int(r.index[r.point(at).slot]); !slices.Contains(dst[begin:], m) {
			if dst = append(dst, m); len(dst) == begin+want {
				return dst
			}
		}
	}
}

func (r *Ring) orderMany(dst []int, hash uint64, want int) []int {
	var room [64]uint64
	seen := room[:]
	if need := (len(r.members) + 63) / 64; need > len(seen) {
		seen = make([]uint64, need)
	}
	for at := r.search(hash); ; at = r.nextPosition(at) {
		m := r.index[r.point(at).slot]
		if bit := uint64(1) << (m % 64); seen[m/64]&bit == 0 {
			seen[m/64] |= bit
			dst = append(dst, int(m))
			if want--; want == 0 {
				return dst
			}
		}
	}
}
