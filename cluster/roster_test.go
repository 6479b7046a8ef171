package cluster

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var dawn = time.Unix(1_000_000, 0)

const testForget = 5 * time.Minute

func rosterOf(self string) *roster {
	return newRoster(record{Name: self, Addr: self + ":1", Born: 1}, testForget)
}

// rec is a member whose address is its own.
func rec(name string, born int64) record {
	return record{Name: name, Addr: name + ":1", Born: born}
}

func names(r *roster) (in []string) {
	for _, e := range r.members() {
		in = append(in, e.Name)
	}
	return in
}

func all(string) bool { return true }

func only(side ...string) func(string) bool {
	return func(name string) bool { return slices.Contains(side, name) }
}

func drawRecord(t *rapid.T) record {
	r := record{
		Name:  rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name"),
		Addr:  rapid.SampledFrom([]string{"x:1", "y:1", "z:1"}).Draw(t, "addr"),
		Born:  rapid.Int64Range(0, 2).Draw(t, "born"),
		Epoch: rapid.Uint64Range(0, 3).Draw(t, "epoch"),
	}
	if rapid.Bool().Draw(t, "gone") {
		r.Gone = dawn.Add(-time.Duration(rapid.IntRange(0, 3).Draw(t, "age")) * time.Second)
	}
	return r
}

func TestMergeIsCommutativeAssociativeAndIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := rapid.SliceOfN(rapid.Custom(drawRecord), 0, 30).Draw(t, "records")
		// Every order, in whatever portions and however often, must end alike.
		arrive := func() *roster {
			r := rosterOf("self")
			todo := append(rapid.Permutation(records).Draw(t, "order"), rapid.Permutation(records).Draw(t, "again")...)
			for len(todo) > 0 {
				n := rapid.IntRange(1, len(todo)).Draw(t, "portion")
				r.merge(todo[:n], dawn)
				todo = todo[n:]
			}
			return r
		}
		one, two := arrive(), arrive()
		require.Equal(t, one.records(), two.records())

		// Merging what came by another's merge gives the same again.
		three := rosterOf("self")
		three.merge(one.records(), dawn)
		require.Equal(t, one.records(), three.records())
		require.False(t, one.merge(two.records(), dawn).roster, "a merge of what is known is no change")
	})
}

func TestRostersThatHaveAllMergedAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := map[string]*roster{"n0": rosterOf("n0"), "n1": rosterOf("n1"), "n2": rosterOf("n2")}
		keys := slices.Sorted(maps.Keys(nodes))
		now := dawn
		sync := func(a, b *roster) {
			a.merge(b.records(), now)
			b.merge(a.records(), now)
		}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "seconds")) * time.Second)
			r := nodes[rapid.SampledFrom(keys).Draw(t, "at")]
			who := rapid.SampledFrom([]string{"n0", "n1", "n2", "m0", "m1"}).Draw(t, "who")
			switch rapid.SampledFrom([]string{"up", "down", "forget", "tick", "sync"}).Draw(t, "event") {
			case "up":
				if who == r.self {
					continue
				}
				said := rec(who, 1)
				if n := nodes[who]; n != nil {
					said = n.entries[who].record
					said.Gone = time.Time{}
				}
				r.up(said, "", now)
			case "down":
				r.down(who, now)
			case "forget":
				r.forgetMember(who, now)
			case "tick":
				r.tick(now, now, only(r.self, "n0", "n1"))
			case "sync":
				sync(r, nodes[rapid.SampledFrom(keys).Draw(t, "with")])
			}
			require.Contains(t, names(r), r.self, "a node that has not left is in its own roster")
		}
		for range 3 { // a node's answer to its own tombstone takes another round
			for _, a := range keys {
				for _, b := range keys {
					sync(nodes[a], nodes[b])
				}
			}
		}
		want := names(nodes["n0"])
		require.Subset(t, want, keys, "nobody who lives stays buried")
		for _, k := range keys {
			require.Equal(t, want, names(nodes[k]))
		}
	})
}

func TestRosterKeepsTheDeadUntilTheyAreForgotten(t *testing.T) {
	r := rosterOf("a")
	for _, name := range []string{"b", "c"} {
		require.True(t, r.up(rec(name, 2), "", dawn).roster)
	}
	require.True(t, r.down("b", dawn).roster)
	require.Equal(t, []string{"a", "b", "c"}, names(r))
	before := dawn.Add(testForget - 1)
	require.False(t, r.tick(dawn, before, only("a", "c")).roster)
	c := r.tick(before, dawn.Add(testForget), only("a", "c"))
	require.True(t, c.roster)
	require.Equal(t, "b", c.spread[0].Name, "the others are told")
	require.Equal(t, []string{"a", "c"}, names(r))
}

func TestWhoForgetsAndWhen(t *testing.T) {
	for _, c := range []struct {
		name  string
		dead  []string // of a to d; a is the oldest and b the node
		after time.Duration
	}{
		{"a majority after Forget", []string{"d"}, testForget},
		{"half with the oldest after Forget", []string{"c", "d"}, testForget},
		{"half without the oldest after ten times Forget", []string{"a", "c"}, 10 * testForget},
		{"a minority after ten times Forget", []string{"a", "c", "d"}, 10 * testForget},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRoster(rec("b", 2), testForget)
			var side []string
			for i, name := range []string{"a", "b", "c", "d"} {
				if name != "b" {
					r.up(rec(name, int64(i+1)), "", dawn)
				}
				if slices.Contains(c.dead, name) {
					r.down(name, dawn)
				} else {
					side = append(side, name)
				}
			}
			require.False(t, r.tick(dawn, dawn.Add(c.after-1), only(side...)).roster)
			require.True(t, r.tick(dawn, dawn.Add(c.after), only(side...)).roster)
			require.Equal(t, side, names(r))
		})
	}
}

func TestTombstoneKeepsTheLeftAwayAndLetsTheLivingBack(t *testing.T) {
	a, b := rosterOf("a"), rosterOf("b")
	for _, r := range []*roster{a, b} {
		r.up(rec("x", 2), "", dawn)
		r.down("x", dawn)
	}
	c, err := a.forgetMember("x", dawn)
	require.NoError(t, err)
	require.True(t, c.roster)
	a.merge(b.records(), dawn)
	require.NotContains(t, names(a), "x", "another's roster does not bring it back")
	require.NotEmpty(t, a.up(rec("x", 2), "", dawn).spread, "who says it is alive is told of the tombstone")
	require.NotContains(t, names(a), "x")

	x := newRoster(rec("x", 2), testForget)
	require.True(t, x.merge(a.records(), dawn).tell)
	require.Contains(t, names(x), "x")
	a.merge(x.records(), dawn)
	require.Contains(t, names(a), "x")
	require.True(t, a.entries["x"].alive)
}

func TestLeaverDoesNotAnswerItsTombstone(t *testing.T) {
	a := rosterOf("a")
	require.True(t, a.leave(dawn).roster)
	require.Empty(t, names(a))
	b := rosterOf("b")
	b.up(rec("a", 1), "", dawn)
	b.merge(a.records(), dawn)
	require.Equal(t, []string{"b"}, names(b))
	require.False(t, a.merge(b.records(), dawn).tell)
	a.tick(dawn, dawn.Add(100*testForget), all)
	require.NotContains(t, names(a), "a")
}

func TestStartAtADeadMembersAddressSupersedesIt(t *testing.T) {
	at := func(name string, born int64) record { return record{Name: name, Addr: "x:1", Born: born} }
	t.Run("the old dies first", func(t *testing.T) {
		r := rosterOf("a")
		r.up(at("x-1", 2), "", dawn)
		r.down("x-1", dawn)
		c := r.up(at("x-2", 3), "", dawn)
		require.Equal(t, []string{"a", "x-2"}, names(r))
		require.Equal(t, "x-1", c.spread[0].Name)
	})
	t.Run("the new starts first", func(t *testing.T) {
		r := rosterOf("a")
		r.up(at("x-1", 2), "", dawn)
		r.up(at("x-2", 3), "", dawn)
		require.Equal(t, []string{"a", "x-1", "x-2"}, names(r))
		r.down("x-1", dawn)
		require.Equal(t, []string{"a", "x-2"}, names(r))
	})
	t.Run("the new is told of the old", func(t *testing.T) {
		r := newRoster(at("x-2", 3), testForget)
		r.merge([]record{at("x-1", 2)}, dawn)
		require.Equal(t, []string{"x-2"}, names(r))
	})
}

func TestMemberThatOnlyOthersKnowCountsAsDeadAfterAWhile(t *testing.T) {
	r := rosterOf("a")
	require.True(t, r.merge([]record{rec("b", 2)}, dawn).roster)
	require.False(t, r.entries["b"].isDead(dawn))
	require.True(t, r.tick(dawn, dawn.Add(hearsay), all).roster)
	require.True(t, r.entries["b"].isDead(dawn.Add(hearsay)))
	require.True(t, r.up(rec("b", 2), "", dawn.Add(hearsay)).roster)
	require.False(t, r.entries["b"].isDead(dawn.Add(hearsay)))
}

func TestForgetRefusesTheLivingAndTheUnknown(t *testing.T) {
	r := rosterOf("a")
	r.up(rec("b", 2), "", dawn)
	for _, name := range []string{"a", "b", "nobody"} {
		_, err := r.forgetMember(name, dawn)
		require.ErrorContains(t, err, name)
	}
}

func TestTombstonesAreBounded(t *testing.T) {
	r := rosterOf("a")
	for i := range maxTombstones + 100 {
		gone := rec(fmt.Sprint("m", i), 2)
		gone.Gone = dawn.Add(time.Duration(i))
		r.merge([]record{gone}, dawn)
	}
	r.tick(dawn, dawn, all)
	require.Len(t, r.entries, maxTombstones+1)
	require.NotContains(t, r.entries, "m0", "the oldest go first")
	r.tick(dawn, dawn.Add(tombstonePatience*testForget+time.Second), all)
	require.Len(t, r.entries, 1)
	old := rec("b", 2)
	old.Gone = dawn.Add(-tombstonePatience * testForget)
	r.merge([]record{old}, dawn)
	require.Len(t, r.entries, 1, "what has crumbled here does not come back from elsewhere")
}

func FuzzRecordsFromTheNetwork(f *testing.F) {
	gone := rec("b", 2)
	gone.Gone = dawn.Add(-time.Second)
	f.Add(encodeRecords([]record{rec("a", 1), gone}, dawn))
	f.Add([]byte{})
	f.Add([]byte("\xdd\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		records, err := decodeRecords(b, dawn)
		if err != nil {
			return
		}
		r := rosterOf("self")
		r.merge(records, dawn)
		r.tick(dawn, dawn.Add(time.Hour), all)
		_, err = decodeRecords(encodeRecords(r.records(), dawn), dawn)
		require.NoError(t, err)
		_, _ = decodeMetadata("a", b)
	})
}
