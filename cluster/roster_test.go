package cluster

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/cluster/detect"
)

var dawn = time.Unix(1_000_000, 0)

const testForget = 5 * time.Minute

func rosterOf(self string) *roster {
	return newRoster(record{Name: self, Addr: self + ":1", Born: 1}, testForget)
}

// rec is a member whose address is its own.
// It is Joining.
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
		Turn:  rapid.Uint64Range(0, 2).Draw(t, "turn"),

		Announced: rapid.SampledFrom([]State{Joining, Serving, Leaving}).Draw(t, "announced"),
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
			switch rapid.SampledFrom([]string{"up", "down", "forget", "tick", "sync", "announce"}).Draw(t, "event") {
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
			case "announce":
				_, err := r.announce(rapid.SampledFrom([]State{Joining, Serving, Leaving}).Draw(t, "state"))
				require.NoError(t, err)
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
		for _, k := range keys { // those that answer nothing have died
			for _, phantom := range []string{"m0", "m1"} {
				nodes[k].down(phantom, now)
			}
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
			for _, about := range keys {
				require.Equal(t, nodes[about].entries[about].Announced, nodes[k].entries[about].Announced)
			}
		}
	})
}

func TestMembersForgetTheDeadAfterForget(t *testing.T) {
	for _, c := range []struct {
		name      string
		living    []string // serve, beside the node itself, b
		joined    []string // live, and do not serve yet
		dead      []string // served
		stillborn []string // died before they served
		kept      []string // of the dead
		after     time.Duration
	}{
		{name: "a larger side after Forget", living: []string{"a", "c"}, dead: []string{"d"}, after: testForget},
		{name: "of two the one that is left after Forget", dead: []string{"a"}, after: testForget},
		{name: "half after Forget", living: []string{"c"}, dead: []string{"a", "d"}, after: testForget},
		{name: "a smaller side after ten times Forget", living: []string{"c"}, dead: []string{"a", "d", "e"}, after: 10 * testForget},
		{name: "with members that joined it, it is no smaller", living: []string{"c"}, joined: []string{"x"}, dead: []string{"a", "d", "e"}, after: testForget},
		{name: "who never served is not missed", living: []string{"c"}, dead: []string{"a", "d"}, stillborn: []string{"x", "y"}, after: testForget},
		{name: "who never served after Forget, on a smaller side too", dead: []string{"a", "c"}, stillborn: []string{"x"}, kept: []string{"a", "c"}, after: testForget},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rosterOf("b")
			mustAnnounce(t, r, Serving)
			add := func(names []string, announced State, alive bool) {
				for _, name := range names {
					m := rec(name, 2)
					m.Announced = announced
					r.up(m, "", dawn)
					if !alive {
						r.down(name, dawn)
					}
				}
			}
			add(c.living, Serving, true)
			add(c.joined, Joining, true)
			add(c.dead, Serving, false)
			add(c.stillborn, Joining, false)
			side := slices.Concat([]string{"b"}, c.living, c.joined)
			require.False(t, r.tick(dawn, dawn.Add(c.after-1), only(side...)).roster)
			require.True(t, r.tick(dawn, dawn.Add(c.after), only(side...)).roster)
			require.ElementsMatch(t, append(side, c.kept...), names(r))
		})
	}
}

func TestNobodyIsForgottenForTimeInWhichThisProcessStoodStill(t *testing.T) {
	r := rosterOf("b")
	for _, name := range []string{"a", "c"} {
		r.up(rec(name, 2), "", dawn)
	}
	r.down("a", dawn)
	before := dawn.Add(testForget / 4)
	thawed := before.Add(10 * testForget)
	r.down("c", thawed) // since the thaw
	r.stood(10*testForget, thawed)
	r.tick(before, thawed, only("b"))
	require.Equal(t, []string{"a", "b", "c"}, names(r))
	last := thawed.Add(testForget - testForget/4)
	require.False(t, r.tick(thawed, last.Add(-1), only("b")).roster)
	require.True(t, r.tick(last.Add(-1), last, only("b")).roster)
	require.Equal(t, []string{"b", "c"}, names(r))
}

// As a split heals, its smaller side hears of the others one by one.
func TestMembersThatAHealBringsLastAreNotForgottenMeanwhile(t *testing.T) {
	r := rosterOf("b")
	mustAnnounce(t, r, Serving)
	for _, name := range []string{"a", "c", "d", "e"} {
		m := rec(name, 2)
		m.Announced = Serving
		r.up(m, "", dawn)
		if name != "a" {
			r.down(name, dawn)
		}
	}
	before := dawn.Add(2 * testForget)
	r.tick(dawn, before, only("a", "b"))
	healed := before.Add(time.Second)
	r.tick(before, healed, only("a", "b", "c"))
	require.Equal(t, []string{"a", "b", "c", "d", "e"}, names(r), "three are no fewer than two, but they have only just met")
	last := before.Add(testForget)
	r.tick(healed, last.Add(-1), only("a", "b", "c"))
	require.Equal(t, []string{"a", "b", "c", "d", "e"}, names(r))
	r.tick(last.Add(-1), last, only("a", "b", "c"))
	require.NotContains(t, names(r), "d")
	require.NotContains(t, names(r), "e")
}

func mustAnnounce(t require.TestingT, r *roster, s State) {
	c, err := r.announce(s)
	require.NoError(t, err)
	require.Equal(t, change{roster: true, tell: true}, c)
}

func TestTheNewestAnnouncementOfAMemberHolds(t *testing.T) {
	a, b := rosterOf("a"), rosterOf("b")
	var said []record
	for _, s := range []State{Serving, Leaving, Serving, Joining} {
		mustAnnounce(t, a, s)
		said = append(said, a.entries["a"].record)
	}
	for _, i := range []int{2, 0, 3, 1} {
		b.merge(said[i:i+1], dawn)
	}
	require.Equal(t, Joining, b.entries["a"].Announced)
	require.False(t, b.up(said[1], "", dawn).tell)
	require.Equal(t, Joining, b.entries["a"].Announced, "what gossip repeats late does not hold")

	c, err := a.announce(Joining)
	require.NoError(t, err)
	require.Equal(t, change{}, c, "it says so already")
	for _, s := range []State{Unheard, Dead, 77} {
		_, err := a.announce(s)
		require.ErrorContains(t, err, s.String())
	}
	a.leave(dawn)
	_, err = a.announce(Serving)
	require.ErrorIs(t, err, errLeft)
}

func TestAMemberThatAnswersItsTombstoneIsJoining(t *testing.T) {
	x := newRoster(rec("x", 2), testForget)
	mustAnnounce(t, x, Serving)
	a := rosterOf("a")
	a.up(x.entries["x"].record, "", dawn)
	_, known := a.buried(x.entries["x"].record)
	require.False(t, known)
	a.down("x", dawn)
	_, err := a.forgetMember("x", dawn)
	require.NoError(t, err)
	mustAnnounce(t, x, Leaving) // what it says meanwhile is of a life that is over

	a.merge(x.records(), dawn)
	b := rosterOf("b")
	b.up(rec("x", 2), "", dawn)
	b.down("x", dawn)
	a.merge(b.records(), dawn)
	require.NotEmpty(t, a.up(x.entries["x"].record, "", dawn).spread, "who says it is alive is told of the tombstone")
	require.NotContains(t, names(a), "x", "neither it nor another's roster brings it back")
	tombstone, known := a.buried(x.entries["x"].record)
	require.True(t, known)
	require.True(t, x.merge([]record{tombstone}, dawn).tell)
	require.Equal(t, Joining, x.entries["x"].Announced)
	require.EqualValues(t, 1, x.entries["x"].Epoch)
	require.False(t, x.merge([]record{tombstone}, dawn).tell, "it is answered once")
	_, known = a.buried(x.entries["x"].record)
	require.False(t, known)
	a.merge(x.records(), dawn)
	require.Equal(t, Joining, a.entries["x"].Announced)
	require.Contains(t, names(a), "x")
	require.True(t, a.entries["x"].alive)
}

// What another's roster tells of a new life is as good as what it tells of a new
// member: that the last life ended long ago does not count against it.
func TestARestartedMemberGetsTimeToAppear(t *testing.T) {
	for name, buried := range map[string]bool{"buried here": true, "buried elsewhere": false} {
		t.Run(name, func(t *testing.T) {
			r := rosterOf("a")
			r.up(rec("x", 2), "", dawn)
			r.down("x", dawn)
			back := dawn.Add(testForget)
			if buried {
				require.True(t, r.tick(dawn, back, all).roster)
				require.NotContains(t, names(r), "x")
			}
			alive := rec("x", 2)
			alive.Epoch = 1
			require.True(t, r.merge([]record{alive}, back).roster)
			require.False(t, r.tick(back, back.Add(unconfirmedTTL-1), all).roster)
			require.Contains(t, names(r), "x")
			require.False(t, r.entries["x"].isDead(back.Add(unconfirmedTTL-1)))
			require.False(t, r.merge([]record{alive}, back.Add(unconfirmedTTL-1)).roster, "it is no news twice")

			forgotten := back.Add(unconfirmedTTL + testForget)
			require.True(t, r.tick(back.Add(unconfirmedTTL-1), forgotten.Add(-1), all).roster, "it counts as dead")
			require.Contains(t, names(r), "x")
			r.tick(forgotten.Add(-1), forgotten, all)
			require.NotContains(t, names(r), "x")
		})
	}
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

func TestAnswerAtAMembersAddressBuriesIt(t *testing.T) {
	at := func(name string, born int64) record { return record{Name: name, Addr: "x:1", Born: born} }
	for _, born := range []int64{1, 2, 3} { // by a clock that may have been set back
		for _, known := range []bool{false, true} {
			r := rosterOf("a")
			r.up(at("x-1", 2), "", dawn)
			if known {
				r.up(at("x-2", born), "", dawn)
			}
			c := r.replace("x-1", dawn)
			require.True(t, c.roster)
			require.Equal(t, "x-1", c.spread[0].Name)
			r.up(at("x-2", born), "", dawn)
			require.Equal(t, []string{"a", "x-2"}, names(r))
			require.Zero(t, r.replace("x-1", dawn), "it is buried")
		}
	}
	r := rosterOf("a")
	require.Zero(t, r.replace("a", dawn))
	require.Zero(t, r.replace("nobody", dawn))
}

// A member may advertise an address at which it does not listen, and two members may
// advertise the same address.
func TestStatedAddressBuriesNoMember(t *testing.T) {
	at := func(name string, born int64) record { return record{Name: name, Addr: "x:1", Born: born} }
	r := rosterOf("a")
	r.up(at("x-1", 2), "", dawn)
	r.down("x-1", dawn)
	r.up(at("x-2", 3), "", dawn)
	r.merge([]record{at("x-3", 4)}, dawn)
	require.Equal(t, []string{"a", "x-1", "x-2", "x-3"}, names(r))
	r = newRoster(at("x-2", 3), testForget)
	r.merge([]record{at("x-1", 2)}, dawn)
	require.Equal(t, []string{"x-1", "x-2"}, names(r))
}

func TestMemberThatOnlyOthersKnowCountsAsDeadAfterAWhile(t *testing.T) {
	r := rosterOf("a")
	require.True(t, r.merge([]record{rec("b", 2)}, dawn).roster)
	require.False(t, r.entries["b"].isDead(dawn))
	require.True(t, r.tick(dawn, dawn.Add(unconfirmedTTL), all).roster)
	require.True(t, r.entries["b"].isDead(dawn.Add(unconfirmedTTL)))
	require.True(t, r.up(rec("b", 2), "", dawn.Add(unconfirmedTTL)).roster)
	require.False(t, r.entries["b"].isDead(dawn.Add(unconfirmedTTL)))
}

func TestForgetRefusesTheLivingAndTheUnknown(t *testing.T) {
	r := rosterOf("a")
	r.up(rec("b", 2), "", dawn)
	for _, name := range []string{"a", "b", "nobody"} {
		_, err := r.forgetMember(name, dawn)
		require.ErrorContains(t, err, name)
	}
}

// crowded returns a roster with more tombstones than it may have. That of m0 is the oldest.
func crowded() *roster {
	r := rosterOf("a")
	for i := range maxTombstones + 100 {
		gone := rec(fmt.Sprint("m", i), 2)
		gone.Gone = dawn.Add(time.Duration(i))
		r.merge([]record{gone}, dawn)
	}
	return r
}

func TestTombstonesAreBounded(t *testing.T) {
	r := crowded()
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

// A node's own tombstone stays, and so does one of whom gossip says that it lives: it
// would be taken for a newcomer.
func TestTombstonesThatAreNeededDoNotCrumble(t *testing.T) {
	r := crowded()
	r.up(rec("m0", 2), "m0:1", dawn)
	r.leave(dawn.Add(-time.Second))
	for _, now := range []time.Time{dawn, dawn.Add(tombstonePatience*testForget + time.Second)} {
		r.tick(dawn, now, all)
		require.Contains(t, r.entries, "a")
		require.Contains(t, r.entries, "m0")
		require.NotContains(t, r.entries, "m1")
	}
	require.Len(t, r.entries, 2)
}

// Others forgot it beyond a cut, and may have forgotten all of this side: a member that drops them
// one by one, as their tombstones come, is alone with what they hold as well.
func TestAMemberThatLivesIsInUntilItAnswersItsTombstone(t *testing.T) {
	serving := func() *roster {
		r := rosterOf("a")
		b := rec("b", 2)
		b.Announced = Serving
		r.up(b, "b:1", dawn)
		buried := b
		buried.Gone = dawn
		c := r.merge([]record{buried}, dawn)
		require.Equal(t, []record{buried}, c.spread, "the others, and b, are to hear of it")
		require.Equal(t, []string{"a", "b"}, names(r))
		require.Equal(t, b, r.members()[1].record, "as it was")
		tombstone, ok := r.buried(b)
		require.True(t, ok, "who speaks with it tells it")
		require.Equal(t, buried, tombstone)
		return r
	}
	answer := rec("b", 2)
	answer.Epoch = 1
	t.Run("it answers another, which tells", func(t *testing.T) {
		r := serving()
		require.True(t, r.merge([]record{answer}, dawn).roster)
		require.Equal(t, answer, r.members()[1].record)
	})
	t.Run("gossip has its answer", func(t *testing.T) {
		r := serving()
		require.True(t, r.up(answer, "b:1", dawn).roster)
		require.Equal(t, answer, r.members()[1].record)
	})
	t.Run("it dies", func(t *testing.T) {
		r := serving()
		require.True(t, r.down("b", dawn).roster)
		require.Equal(t, []string{"a"}, names(r))
	})
	t.Run("another member answers at its address", func(t *testing.T) {
		r := serving()
		buried := r.entries["b"].Gone
		require.Equal(t, change{roster: true}, r.replace("b", dawn.Add(time.Second)))
		require.Equal(t, []string{"a"}, names(r))
		require.Equal(t, buried, r.entries["b"].Gone)
	})
	t.Run("it does neither for seconds", func(t *testing.T) {
		r := serving()
		require.False(t, r.tick(dawn, dawn.Add(unansweredTTL-1), all).roster)
		require.Equal(t, []string{"a", "b"}, names(r))
		require.True(t, r.tick(dawn, dawn.Add(unansweredTTL), all).roster)
		require.Equal(t, []string{"a"}, names(r))
	})
	t.Run("time in which this process stood still does not count", func(t *testing.T) {
		r := serving()
		r.stood(time.Minute, dawn.Add(time.Minute))
		require.False(t, r.tick(dawn, dawn.Add(time.Minute+unansweredTTL-1), all).roster)
		require.Equal(t, []string{"a", "b"}, names(r))
	})
	t.Run("one that is dead is not waited for", func(t *testing.T) {
		r := rosterOf("a")
		r.up(rec("b", 2), "b:1", dawn)
		r.down("b", dawn)
		buried := rec("b", 2)
		buried.Gone = dawn
		r.merge([]record{buried}, dawn)
		require.Equal(t, []string{"a"}, names(r))
	})
}

// What comes by several ways is told on once.
func TestABurialIsNewsOnce(t *testing.T) {
	r := rosterOf("a")
	r.up(rec("b", 2), "b:1", dawn)
	gone := rec("b", 2)
	gone.Gone = dawn
	c := r.merge([]record{gone}, dawn)
	require.True(t, c.roster)
	require.Equal(t, []record{gone}, c.spread)
	gone.Gone = dawn.Add(-time.Millisecond)
	require.Zero(t, r.merge([]record{gone}, dawn))
	require.Equal(t, gone.Gone, r.entries["b"].Gone)
}

func TestAGoodbyeIsSaidOnce(t *testing.T) {
	r := rosterOf("a")
	require.True(t, r.leave(dawn).tell)
	require.Zero(t, r.leave(dawn.Add(time.Minute)))
	require.Equal(t, dawn, r.entries["a"].Gone)
}

func TestARosterIsBounded(t *testing.T) {
	r := rosterOf("a")
	var members, tombstones []record
	for i := range detect.MaxRecords + 10 {
		members = append(members, rec(fmt.Sprintf("m%05d", i), 2))
		gone := rec(fmt.Sprintf("t%05d", i), 2)
		gone.Gone = dawn
		tombstones = append(tombstones, gone)
	}
	c := r.merge(members, dawn)
	require.Equal(t, []int{1 + newMembers, len(members) - newMembers}, []int{r.size(), c.full}, "at once")
	require.False(t, r.room("z", dawn))
	require.True(t, r.room("m00000", dawn))
	require.Equal(t, change{full: 1}, r.up(rec("z", 2), "z:1", dawn))

	now := dawn.Add(time.Second)
	require.True(t, r.room("z", now))
	r.merge(members, now)
	require.Equal(t, 1+newMembers+newMembersEach, r.size(), "in a second")

	for range 2 {
		now = now.Add(time.Minute)
		r.merge(members, now)
	}
	require.Equal(t, maxMembers, r.size(), "in all")
	require.False(t, r.room("z", now))
	require.Equal(t, change{full: 1}, r.up(rec("z", 2), "z:1", now))
	require.NotContains(t, r.entries, "z")
	require.True(t, r.up(rec("m00000", 2), "m00000:1", now).roster, "who is in it comes to life")

	r.merge(tombstones, now)
	require.Len(t, r.entries, detect.MaxRecords, "with tombstones")
	back := tombstones[0]
	back.Gone, back.Epoch = time.Time{}, 1
	require.Equal(t, 1, r.merge([]record{back}, now).full, "nobody comes back from one where there is no room")
	require.Equal(t, 1, r.up(back, "t:1", now).full)
	require.Equal(t, maxMembers, r.size())
}

// Of two records of a member the one that says more holds, and all agree which: only
// equal ones are alike.
func TestTheRecordThatSaysMoreHolds(t *testing.T) {
	buried := func(ago time.Duration) func(*record) { return func(r *record) { r.Gone = dawn.Add(-ago) } }
	for about, c := range map[string]struct{ less, more func(*record) }{
		"a later life":                      {buried(0), func(r *record) { r.Epoch = 1 }},
		"a burial":                          {func(r *record) { r.Turn = 9 }, buried(0)},
		"the first burial":                  {buried(time.Second), buried(time.Minute)},
		"a later turn":                      {func(r *record) { r.Announced = Leaving }, func(r *record) { r.Turn = 1 }},
		"another state, by mistake":         {func(*record) {}, func(r *record) { r.Announced = Serving }},
		"another time of birth, by mistake": {func(*record) {}, func(r *record) { r.Born = 8 }},
		"another address, by mistake":       {func(*record) {}, func(r *record) { r.Addr = "z:1" }},
		"another region, by mistake":        {func(*record) {}, func(r *record) { r.Region = "z" }},
	} {
		less, more := rec("a", 7), rec("a", 7)
		c.less(&less)
		c.more(&more)
		require.Positive(t, more.compare(less), about)
		require.Negative(t, less.compare(more), about)
		require.Zero(t, more.compare(more), about)
		r := rosterOf("self")
		for _, one := range []record{less, more, less} {
			r.merge([]record{one}, dawn)
		}
		require.Equal(t, more, r.entries["a"].record, about)
	}
}

func TestARosterOutOfBoundsIsRefused(t *testing.T) {
	good := wireRecord{Name: "b", Addr: "b:1", Region: "r", Born: 1, State: Joining}
	with := func(change func(*wireRecord)) rosterMessage {
		r := good
		change(&r)
		return rosterMessage{Version: membershipVersion, Records: []wireRecord{good, r}}
	}
	for about, c := range map[string]struct {
		m    rosterMessage
		want string // empty: it is taken
	}{
		"one that is good":                        {with(func(*wireRecord) {}), ""},
		"the last epoch and turn":                 {with(func(r *wireRecord) { r.Epoch, r.Turn = maxEpoch, maxEpoch }), ""},
		"the last tombstone that can be answered": {with(func(r *wireRecord) { r.Epoch, r.Gone = maxEpoch-1, true }), ""},
		"the version before":                      {rosterMessage{Version: membershipVersion - 1}, "version 0"},
		"the version after":                       {rosterMessage{Version: membershipVersion + 1}, "version 2"},
		"too many records":                        {rosterMessage{Version: membershipVersion, Records: slices.Repeat([]wireRecord{good}, detect.MaxRecords+1)}, "8193 records"},
		"as many as may be":                       {rosterMessage{Version: membershipVersion, Records: slices.Repeat([]wireRecord{good}, detect.MaxRecords)}, ""},
		"no name":                                 {with(func(r *wireRecord) { r.Name = "" }), "record 1 is out of bounds"},
		"a long name":                             {with(func(r *wireRecord) { r.Name = strings.Repeat("b", detect.MaxName+1) }), "record 1 is out of bounds"},
		"no address":                              {with(func(r *wireRecord) { r.Addr = "" }), "record 1 is out of bounds"},
		"a long address":                          {with(func(r *wireRecord) { r.Addr = strings.Repeat("b", maxAddr+1) }), "record 1 is out of bounds"},
		"a long region":                           {with(func(r *wireRecord) { r.Region = strings.Repeat("b", maxRegion+1) }), "record 1 is out of bounds"},
		"an epoch that leaves no room":            {with(func(r *wireRecord) { r.Epoch = maxEpoch + 1 }), "record 1 is out of bounds"},
		"a tombstone that cannot be answered":     {with(func(r *wireRecord) { r.Epoch, r.Gone = maxEpoch, true }), "record 1 is out of bounds"},
		"a turn that leaves no room":              {with(func(r *wireRecord) { r.Turn = maxEpoch + 1 }), "record 1 is out of bounds"},
		"a state that nobody announces":           {with(func(r *wireRecord) { r.State = Dead }), "record 1 is out of bounds"},
		"a burial that is yet to come":            {with(func(r *wireRecord) { r.Gone, r.Age = true, -1 }), "record 1 is out of bounds"},
	} {
		records, err := decodeRecords(encode(c.m), dawn)
		if c.want == "" {
			require.NoError(t, err, about)
			require.Len(t, records, len(c.m.Records), about)
			continue
		}
		require.ErrorContains(t, err, c.want, about)
	}
	_, err := decodeRecords(make([]byte, maxRosterMessage+1), dawn)
	require.ErrorContains(t, err, "the bound is")
	ahead := rec("b", 1)
	ahead.Gone = dawn.Add(time.Hour) // by a clock that has stepped back since
	records, err := decodeRecords(encodeRecords([]record{ahead}, dawn), dawn)
	require.NoError(t, err)
	require.Equal(t, dawn, records[0].Gone)
}

func TestAnAgeFromTheNetworkIsBounded(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{time.Hour: time.Hour, maxAge: maxAge, maxAge + 1: maxAge, math.MaxInt64: maxAge} {
		r := wireRecord{Name: "b", Addr: "b:1", State: Joining, Gone: true, Age: age}
		records, err := decodeRecords(encode(rosterMessage{Version: membershipVersion, Records: []wireRecord{r}}), dawn)
		require.NoError(t, err)
		require.Equal(t, want, dawn.Sub(records[0].Gone), "%v", age)
	}
}

func TestMetadataOutOfBoundsIsRefused(t *testing.T) {
	good := metadata{Version: membershipVersion, Addr: "b:1", Region: "r", Seed: make([]byte, 16), Born: 1, State: Joining}
	for about, c := range map[string]struct {
		name   string
		change func(*metadata)
		good   bool
	}{
		"one that is good":              {"b", func(*metadata) {}, true},
		"the last epoch and turn":       {"b", func(m *metadata) { m.Epoch, m.Turn = maxEpoch, maxEpoch }, true},
		"the version before":            {"b", func(m *metadata) { m.Version-- }, false},
		"the version after":             {"b", func(m *metadata) { m.Version++ }, false},
		"a short Seed":                  {"b", func(m *metadata) { m.Seed = m.Seed[1:] }, false},
		"a long Seed":                   {"b", func(m *metadata) { m.Seed = make([]byte, 17) }, false},
		"no name":                       {"", func(*metadata) {}, false},
		"no address":                    {"b", func(m *metadata) { m.Addr = "" }, false},
		"a long region":                 {"b", func(m *metadata) { m.Region = strings.Repeat("r", maxRegion+1) }, false},
		"an epoch that leaves no room":  {"b", func(m *metadata) { m.Epoch = maxEpoch + 1 }, false},
		"a turn that leaves no room":    {"b", func(m *metadata) { m.Turn = maxEpoch + 1 }, false},
		"a state that nobody announces": {"b", func(m *metadata) { m.State = Dead }, false},
	} {
		m := good
		c.change(&m)
		_, err := decodeMetadata(c.name, encode(m))
		require.Equal(t, c.good, err == nil, about)
	}
	_, err := decodeMetadata("b", append(encode(good), make([]byte, 512)...))
	require.ErrorIs(t, err, errMetadata)
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
