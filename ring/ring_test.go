package ring

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/weir-go/weir/internal/testenv"
)

func memberNames(n int) []string {
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprintf("node-%d-%08x", i, uint32(i)*2654435761)
	}
	return members
}

// simple implements the definition of the ring: every point is examined, and members are names
// instead of indexes.
type simple []simplePoint

type simplePoint struct {
	hash   uint64
	member string
}

func newSimple(members []string) simple {
	var d simple
	for _, m := range members {
		for i := range uint32(pointsPerMember) {
			d = append(d, simplePoint{xxhash.Sum64(appendPoint(nil, m, i)), m})
		}
	}
	return d
}

func (d simple) owner(hash uint64) string {
	distance := func(p simplePoint) uint64 { return p.hash - hash }
	return slices.MinFunc(d, func(a, b simplePoint) int {
		return cmp.Or(cmp.Compare(distance(a), distance(b)), strings.Compare(a.member, b.member))
	}).member
}

// order repeatedly finds the owner and removes it from the ring.
func (d simple) order(hash uint64) []string {
	var order []string
	for len(d) > 0 {
		owner := d.owner(hash)
		order = append(order, owner)
		d = slices.DeleteFunc(slices.Clone(d), func(p simplePoint) bool { return p.member == owner })
	}
	return order
}

func ownerName(r *Ring, hash uint64) string { return r.Members()[r.Owner(hash)] }

func orderNames(r *Ring, hash uint64, limit int) []string {
	var order []string
	for _, i := range r.Order(nil, hash, limit) {
		order = append(order, r.Members()[i])
	}
	return order
}

// allPoints returns the points of the ring in order.
func allPoints(r *Ring) (points []point) {
	for _, p := range r.pages {
		points = append(points, p.points...)
	}
	return points
}

func TestEmptyRingHasNoOwner(t *testing.T) {
	for _, r := range []*Ring{New(nil), New([]string{})} {
		for _, h := range []uint64{0, 1, 1 << 63, math.MaxUint64} {
			require.Equal(t, -1, r.Owner(h))
			require.Empty(t, r.Order(nil, h, 3))
		}
		require.Empty(t, r.Members())
	}
}

func TestNewDoesNotAliasItsArgument(t *testing.T) {
	members := []string{"b", "a", "c"}
	r := New(members)
	require.Equal(t, []string{"b", "a", "c"}, members, "New sorted its caller's slice")
	members[0] = "x"
	require.Equal(t, []string{"a", "b", "c"}, r.Members())
}

func TestRepeatedNameCountsOnce(t *testing.T) {
	require.Equal(t, New([]string{"a", "b"}), New([]string{"b", "a", "b", "a"}))
}

func TestNewIgnoresTheOrderOfMembers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := rapid.SliceOfNDistinct(rapid.String(), 0, 12, rapid.ID).Draw(t, "members")
		shuffled := rapid.Permutation(members).Draw(t, "shuffled")
		require.Equal(t, New(members), New(shuffled))
	})
}

func TestOwnerAndOrderAgreeWithTheSimpleRing(t *testing.T) { rapid.Check(t, agreesWithSimple) }

func FuzzRing(f *testing.F) { f.Fuzz(rapid.MakeFuzz(agreesWithSimple)) }

func agreesWithSimple(t *rapid.T) {
	// Some names end in digits, so that a name and an index could be confused.
	name := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "a", "a1", "a11", "1", "11", "1a", "a\x00", "a\x00\x00\x00\x01", "\x00\x00\x00\x01a"}))
	members := rapid.SliceOfNDistinct(name, 1, 8, rapid.ID).Draw(t, "members")
	r, d := New(members), newSimple(members)
	hashes := rapid.SliceOfN(rapid.Uint64(), 1, 4).Draw(t, "hashes")
	p := rapid.SampledFrom(allPoints(r)).Draw(t, "point")
	for _, h := range append(hashes, p.hash-1, p.hash, p.hash+1, 0, math.MaxUint64) {
		require.Equal(t, d.owner(h), ownerName(r, h), "owner of %#x", h)
		want := d.order(h)
		for limit := -1; limit < len(members)+2; limit++ {
			require.Equal(t, want[:max(0, min(limit, len(want)))], append([]string{}, orderNames(r, h, limit)...),
				"first %d from %#x", limit, h)
		}
	}
}

func TestJoinMovesFairShareOnlyToJoiner(t *testing.T) {
	const hashes = 100_000
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 9, 49} {
		members := memberNames(n + 1)
		joiner := members[n]
		before, after := New(members[:n]), New(members)
		moved := 0
		for range hashes {
			h := rng.Uint64()
			was, is := ownerName(before, h), ownerName(after, h)
			if was != is {
				require.Equal(t, joiner, is, "%d members: %#x moved between old members", n, h)
				moved++
			}
		}
		// Points are random, so the standard deviation of a share is about 1/sqrt(points).
		// Four standard deviations are 18 %.
		require.InEpsilon(t, hashes/float64(n+1), moved, 0.18, "%d members", n)
	}
}

// busiest returns the share of the busiest member, as a multiple of the fair share. It adds
// up the exact lengths of the arcs instead of sampling hashes.
func busiest(r *Ring) float64 {
	owned := make([]float64, len(r.members))
	r.Arcs(func(first, last uint64, owner int) { owned[owner] += float64(last - first) })
	return slices.Max(owned) / math.Exp2(64) * float64(len(owned))
}

func TestBusiestOf10MembersOwnsAtMost110Percent(t *testing.T) {
	// A single cluster can deviate, so the test averages over many clusters.
	for _, c := range []struct {
		nodes, clusters int
		most            float64
	}{
		{3, 100, 1.10},
		{10, 100, 1.10},
		{100, 20, 1.14},
	} {
		mean := 0.0
		for cluster := range c.clusters {
			members := memberNames(c.nodes)
			for i := range members {
				members[i] = fmt.Sprint(members[i], "-", cluster)
			}
			mean += busiest(New(members)) / float64(c.clusters)
		}
		require.LessOrEqual(t, mean, c.most, "%d nodes", c.nodes)
	}
	require.LessOrEqual(t, busiest(New(memberNames(10))), 1.10)
}

func TestNoTwoPointsHaveTheSameEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringOf(rapid.SampledFrom([]rune{'a', '1', '0', 0, 1, '-'}))
		a, b := name.Draw(t, "a"), name.Draw(t, "b")
		i, j := rapid.Uint32().Draw(t, "i"), rapid.Uint32().Draw(t, "j")
		same := a == b && i == j
		require.Equal(t, same, bytes.Equal(appendPoint(nil, a, i), appendPoint(nil, b, j)))
	})
}

func TestOrderAppendsWithoutAllocating(t *testing.T) {
	for _, n := range []int{3, 100, 4096} {
		r := New(memberNames(n))
		dst := make([]int, 0, n+1)
		require.Zero(t, testing.AllocsPerRun(20, func() {
			dst = r.Order(append(dst[:0], -7), 12345, n)
		}), "%d members", n)
		require.Equal(t, -7, dst[0])
		require.Len(t, dst, n+1)
		slices.Sort(dst[1:])
		require.Len(t, slices.Compact(dst[1:]), n, "a member is repeated")
	}
}

func TestOrderReturnsMoreThan4096Members(t *testing.T) {
	r := New(memberNames(4200))
	order := r.Order(nil, 99, math.MaxInt)
	require.Equal(t, r.Owner(99), order[0])
	slices.Sort(order)
	require.Len(t, slices.Compact(order), 4200)
}

func TestArcsCoverAllHashes(t *testing.T) {
	for _, n := range []int{1, 2, 7} {
		r := New(memberNames(n))
		next := uint64(0)
		r.Arcs(func(first, last uint64, owner int) {
			require.Equal(t, next, first)
			require.LessOrEqual(t, first, last)
			require.Equal(t, r.Owner(last), owner)
			require.Equal(t, r.Order(nil, first, n), r.Order(nil, last, n))
			next = last + 1
		})
		require.Zero(t, next, "the last arc ends at the highest hash")
	}
	New(nil).Arcs(func(_, _ uint64, _ int) { t.Fatal("no members, no arcs") })
}

// arc is the hashes from first to last.
type arc struct{ first, last uint64 }

func contains(arcs []arc, hash uint64) bool {
	return slices.ContainsFunc(arcs, func(a arc) bool { return a.first <= hash && hash <= a.last })
}

// After members join and leave, the ring must equal the ring that another node builds of the same
// members with New. The previous ring must not change.
func TestReplaceMembersReturnsTheRingOfNew(t *testing.T) {
	named := func(r *Ring) (points []simplePoint) {
		for _, p := range allPoints(r) {
			points = append(points, simplePoint{p.hash, r.nameOf(p)})
		}
		return points
	}
	rapid.Check(t, func(t *rapid.T) {
		all := memberNames(24)
		r := New(nil)
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			members, before := append([]string{}, r.members...), named(r)
			for range rapid.IntRange(1, 4).Draw(t, "changes") {
				name := rapid.SampledFrom(all).Draw(t, "name")
				if i, known := slices.BinarySearch(members, name); known {
					members = slices.Delete(members, i, i+1)
				} else {
					members = slices.Insert(members, i, name)
				}
			}
			next := r.ReplaceMembers(members)
			require.Equal(t, before, named(r))
			require.Equal(t, members, append([]string{}, next.members...))
			require.Equal(t, named(New(members)), named(next))
			h := rapid.Uint64().Draw(t, "hash")
			require.Equal(t, New(members).Order(nil, h, 24), next.Order(nil, h, 24))
			r = next
		}
	})
}

func TestArcsOfCoversOwnedHashes(t *testing.T) {
	r := New(memberNames(7))
	for i, name := range r.Members() {
		var owned []arc
		r.ArcsOf(name, func(first, last uint64) { owned = append(owned, arc{first, last}) })
		r.Arcs(func(first, last uint64, owner int) {
			require.Equal(t, owner == i, contains(owned, first))
			require.Equal(t, owner == i, contains(owned, last))
		})
	}
	r.ArcsOf("no member", func(_, _ uint64) { t.Fatal("no member, no arcs") })
}

func TestArcsWithCoversHashesOfNewMember(t *testing.T) {
	for _, n := range []int{0, 1, 2, 7} {
		r, name := New(memberNames(n)), "joiner"
		with := New(append(memberNames(n), name))
		at := slices.Index(with.Members(), name)
		for first := range 4 {
			var arcs []arc
			r.ArcsWith(name, first, func(first, last uint64) { arcs = append(arcs, arc{first, last}) })
			with.Arcs(func(from, to uint64, _ int) {
				want := slices.Contains(with.Order(nil, to, first), at)
				require.Equal(t, want, contains(arcs, from))
				require.Equal(t, want, contains(arcs, to))
			})
		}
	}
}

func TestArcsInCoversExactlyTheGivenRange(t *testing.T) {
	r := New(memberNames(3))
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(allPoints(r)).Draw(t, "point")
		ends := []uint64{rapid.Uint64().Draw(t, "hash"), rapid.SampledFrom([]uint64{p.hash - 1, p.hash, p.hash + 1, 0, math.MaxUint64}).Draw(t, "end")}
		slices.Sort(ends)
		next := ends[0]
		r.ArcsIn(ends[0], ends[1], func(first, last uint64, owner int) {
			require.Equal(t, next, first)
			require.Equal(t, []int{r.Owner(first), r.Owner(last)}, []int{owner, owner})
			next = last + 1
		})
		require.Equal(t, ends[1]+1, next)
	})
}

func BenchmarkRing(b *testing.B) {
	for _, n := range []int{3, 10, 1000} {
		members := memberNames(n + 1)
		slices.Sort(members)
		r := New(members[:n])
		run := func(name string, f func(hash uint64)) {
			b.Run(fmt.Sprintf("%d members/%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for h := uint64(1); b.Loop(); h = h*0x9e3779b97f4a7c15 + 1 {
					f(h)
				}
			})
		}
		run("new", func(uint64) { New(members[:n]) })
		run("joined", func(uint64) { r.ReplaceMembers(members) })
		run("owner", func(h uint64) { r.Owner(h) })
		dst := make([]int, 0, 3)
		run("three in order", func(h uint64) { r.Order(dst[:0], h, 3) })
	}
}
