package view

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/ring"
	countsync "github.com/weir-go/weir/sync"
)

// New computes a view from the previous view and the changes. The result must be equal to that of a
// computation over all members and all arcs.
func TestIncrementalViewEqualsFullComputation(t *testing.T) {
	testenv.SkipOneGoroutine(t)
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		second, members, v := int64(100), "a b c", viewAt(100, nil, "a b c")
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			second += rapid.SampledFrom([]int64{0, 1, 2, 20}).Draw(t, "seconds")
			now := second * int64(time.Second)
			some := countsync.NewRanges(countsync.Range{First: rapid.Uint64().Draw(t, "first"), Last: 1<<64 - 1})
			switch rapid.IntRange(0, 3).Draw(t, "transfer") {
			case 0:
				v = v.TransferRanges(v.Ranges(Held).Intersect(some), "b", now)
			case 1:
				v = v.ReceiveRanges(some)
			}
			if rapid.Bool().Draw(t, "change") {
				members = rapid.SampledFrom([]string{"a*", "a*", "a*", "a*+", "a*<"}).Draw(t, "self")
				for _, name := range "bcdefg" {
					members += fmt.Sprintf(rapid.SampledFrom([]string{" %c", " %c", " %c", "%.0c", " %c-", " %c+", " %c<", " %c-<"}).Draw(t, "member"), name)
				}
			}
			before := v
			v = viewAt(second, before, members)
			for _, j := range v.joiners {
				require.Equal(t, rangesWith(ring.New(v.Ring.Members()), v.Members[j.member].Name, v.copies+1), j.ranges, members)
			}
			require.Equal(t, fullAuthority(before, v, now), v.authority, members)
			require.False(t, v.OwesAs(before) && !equalAudiences(v, before), members)
			requireFullAudiences(t, v)
		}
	})
}

func TestLeavingJoinerOwesItsCountsToTheEldest(t *testing.T) {
	joins := viewAt(1, nil, "a+ b*+")
	leaves := viewAt(2, joins, "a+ b*<")
	require.Empty(t, joins.Audiences()[NameHash("a")])
	require.Equal(t, countsync.All(), leaves.Audiences()[NameHash("a")])
	require.False(t, leaves.OwesAs(joins))
}

// arcsOf returns the arcs of a ring.
func arcsOf(r *ring.Ring) (arcs countsync.Ranges) {
	r.Arcs(func(first, last uint64, _ int) { arcs = append(arcs, countsync.Range{First: first, Last: last}) })
	return arcs
}

// fullAuthority returns the authority that follows from passRange for each arc of the earlier and the next ring.
func fullAuthority(before, v *View, now int64) authority {
	p := newPassage(before, v, now)
	cuts := append(cutsOf(arcsOf(p.earlier)), cutsOf(arcsOf(v.Ring))...)
	a := before.restate(cuts, v.ownedBy(v.Self), p.passRange)
	a.Recalls = p.recalls
	return a
}

func equalAudiences(v, o *View) bool {
	a, b := v.Audiences(), o.Audiences()
	return !slices.ContainsFunc(v.Hashes, func(m countsync.Member) bool { return !a[m].Equal(b[m]) })
}

// requireFullAudiences finds, for each arc of the ring alone, the members that receive its counts and the
// member that answers for it. It fails if Audiences or Answerers returns other members.
func requireFullAudiences(t *rapid.T, v *View) {
	audiences, answerers := v.Audiences(), v.Answerers(countsync.All())
	for _, arc := range arcsOf(v.Ring) {
		id := bucket.ID{Hi: arc.Last}
		owner := v.Owner(id)
		var want []countsync.Member
		switch s := v.successor(id); {
		case v.Holds(id):
			want = v.Targets(nil, id)
		case s < 0 || v.Reaches(owner) && !v.missesSuccessors(owner) && !v.isAbandoned(id): // the owner has the counts
		case s == v.Self:
			want = v.Targets(nil, id)
		default:
			want = []countsync.Member{v.Hashes[s]}
		}
		for i, m := range v.Hashes {
			if slices.Contains(want, m) != audiences[m].Contains(id.Hi) || (i == v.firstReplica(id.Hi)) != answerers[i].Contains(id.Hi) {
				t.Fatalf("%s at %x: targets %v, answers %v", v.Members[i].Name, id.Hi, slices.Contains(want, m), i == v.firstReplica(id.Hi))
			}
		}
	}
}
