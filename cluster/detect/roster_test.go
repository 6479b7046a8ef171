package detect

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

func rosterOf(self string) *Roster {
	return NewRoster(Record{Name: self, Addr: self + ":1", Born: 1}, testForget)
}

// rec returns the record of a joining member with its own address.
func rec(name string, born int64) Record {
	return Record{Name: name, Addr: name + ":1", Born: born}
}

func memberNames(r *Roster) (in []string) {
	for _, e := range r.Members() {
		in = append(in, e.Name)
	}
	return in
}

func allOnSide(string) bool { return true }

func onlyOnSide(side ...string) func(string) bool {
	return func(name string) bool { return slices.Contains(side, name) }
}

func drawRecord(t *rapid.T) Record {
	r := Record{
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
		// Every order, in any portions and repeatedly, must have the same outcome.
		arrive := func() *Roster {
			r := rosterOf("self")
			todo := append(rapid.Permutation(records).Draw(t, "order"), rapid.Permutation(records).Draw(t, "again")...)
			for len(todo) > 0 {
				n := rapid.IntRange(1, len(todo)).Draw(t, "portion")
				r.Merge(todo[:n], dawn)
				todo = todo[n:]
			}
			return r
		}
		one, two := arrive(), arrive()
		require.Equal(t, one.Records(), two.Records())

		// The records of a merged roster have the same outcome.
		three := rosterOf("self")
		three.Merge(one.Records(), dawn)
		require.Equal(t, one.Records(), three.Records())
		require.False(t, one.Merge(two.Records(), dawn).Members, "a merge of known records is a change")
	})
}

func TestRostersConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := map[string]*Roster{"n0": rosterOf("n0"), "n1": rosterOf("n1"), "n2": rosterOf("n2")}
		keys := slices.Sorted(maps.Keys(nodes))
		now := dawn
		sync := func(a, b *Roster) {
			a.Merge(b.Records(), now)
			b.Merge(a.Records(), now)
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
					said = n.entries[who].Record
					said.Gone = time.Time{}
				}
				r.RecordAlive(said, "", now)
			case "announce":
				_, err := r.Announce(rapid.SampledFrom([]State{Joining, Serving, Leaving}).Draw(t, "state"))
				require.NoError(t, err)
			case "down":
				r.RecordDeath(who, false, now)
			case "forget":
				r.Forget(who, now)
			case "tick":
				r.Tick(now, now, onlyOnSide(r.self, "n0", "n1"))
			case "sync":
				sync(r, nodes[rapid.SampledFrom(keys).Draw(t, "with")])
			}
			require.Contains(t, memberNames(r), r.self, "a node that has not left is in its own roster")
		}
		for _, k := range keys { // gossip reports the members that never answer as dead
			for _, phantom := range []string{"m0", "m1"} {
				nodes[k].RecordDeath(phantom, false, now)
			}
		}
		for range 3 { // a node answers its own tombstone only in the next round
			for _, a := range keys {
				for _, b := range keys {
					sync(nodes[a], nodes[b])
				}
			}
		}
		want := memberNames(nodes["n0"])
		require.Subset(t, want, keys, "a living member is in every roster")
		for _, k := range keys {
			require.Equal(t, want, memberNames(nodes[k]))
			for _, about := range keys {
				require.Equal(t, nodes[about].entries[about].Announced, nodes[k].entries[about].Announced)
			}
		}
	})
}

func TestTickForgetsDeadMembers(t *testing.T) {
	for _, c := range []struct {
		name      string
		living    []string // members that serve, besides the node b itself
		joined    []string // members that are alive, and do not serve yet
		dead      []string // members that served before they died
		stillborn []string // members that died before they served
		kept      []string // dead members that the roster must keep
		after     time.Duration
	}{
		{name: "a larger side after Forget", living: []string{"a", "c"}, dead: []string{"d"}, after: testForget},
		{name: "the remaining one of two members after Forget", dead: []string{"a"}, after: testForget},
		{name: "half of the members after Forget", living: []string{"c"}, dead: []string{"a", "d"}, after: testForget},
		{name: "a smaller side after ten times Forget", living: []string{"c"}, dead: []string{"a", "d", "e"}, after: 10 * testForget},
		{name: "a side includes the members that joined it", living: []string{"c"}, joined: []string{"x"}, dead: []string{"a", "d", "e"}, after: testForget},
		{name: "a member that never served does not count as missing", living: []string{"c"}, dead: []string{"a", "d"}, stillborn: []string{"x", "y"}, after: testForget},
		{name: "a member that never served after Forget, on a smaller side too", dead: []string{"a", "c"}, stillborn: []string{"x"}, kept: []string{"a", "c"}, after: testForget},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rosterOf("b")
			mustAnnounce(t, r, Serving)
			add := func(names []string, announced State, alive bool) {
				for _, name := range names {
					m := rec(name, 2)
					m.Announced = announced
					r.RecordAlive(m, "", dawn)
					if !alive {
						r.RecordDeath(name, false, dawn)
					}
				}
			}
			add(c.living, Serving, true)
			add(c.joined, Joining, true)
			add(c.dead, Serving, false)
			add(c.stillborn, Joining, false)
			side := slices.Concat([]string{"b"}, c.living, c.joined)
			require.False(t, r.Tick(dawn, dawn.Add(c.after-1), onlyOnSide(side...)).Members)
			require.True(t, r.Tick(dawn, dawn.Add(c.after), onlyOnSide(side...)).Members)
			require.ElementsMatch(t, append(side, c.kept...), memberNames(r))
		})
	}
}

func TestPauseDoesNotForgetMembers(t *testing.T) {
	r := rosterOf("b")
	for _, name := range []string{"a", "c"} {
		r.RecordAlive(rec(name, 2), "", dawn)
	}
	r.RecordDeath("a", false, dawn)
	before := dawn.Add(testForget / 4)
	thawed := before.Add(10 * testForget)
	r.RecordDeath("c", false, thawed) // after the pause
	r.SkipPause(10*testForget, thawed)
	r.Tick(before, thawed, onlyOnSide("b"))
	require.Equal(t, []string{"a", "b", "c"}, memberNames(r))
	last := thawed.Add(testForget - testForget/4)
	require.False(t, r.Tick(thawed, last.Add(-1), onlyOnSide("b")).Members)
	require.True(t, r.Tick(last.Add(-1), last, onlyOnSide("b")).Members)
	require.Equal(t, []string{"b", "c"}, memberNames(r))
}

// When a partition heals, the smaller side connects to the other members in turn.
func TestHealedSideKeepsMembersThatConnectLast(t *testing.T) {
	r := rosterOf("b")
	mustAnnounce(t, r, Serving)
	for _, name := range []string{"a", "c", "d", "e"} {
		m := rec(name, 2)
		m.Announced = Serving
		r.RecordAlive(m, "", dawn)
		if name != "a" {
			r.RecordDeath(name, false, dawn)
		}
	}
	before := dawn.Add(2 * testForget)
	r.Tick(dawn, before, onlyOnSide("a", "b"))
	healed := before.Add(time.Second)
	r.Tick(before, healed, onlyOnSide("a", "b", "c"))
	require.Equal(t, []string{"a", "b", "c", "d", "e"}, memberNames(r), "three are no fewer than two, but have only just connected")
	last := before.Add(testForget)
	r.Tick(healed, last.Add(-1), onlyOnSide("a", "b", "c"))
	require.Equal(t, []string{"a", "b", "c", "d", "e"}, memberNames(r))
	r.Tick(last.Add(-1), last, onlyOnSide("a", "b", "c"))
	require.NotContains(t, memberNames(r), "d")
	require.NotContains(t, memberNames(r), "e")
}

func mustAnnounce(t require.TestingT, r *Roster, s State) {
	c, err := r.Announce(s)
	require.NoError(t, err)
	require.Equal(t, Change{Members: true, Own: true}, c)
}

func TestLatestAnnouncementIsKept(t *testing.T) {
	a, b := rosterOf("a"), rosterOf("b")
	var said []Record
	for _, s := range []State{Serving, Leaving, Serving, Joining} {
		mustAnnounce(t, a, s)
		said = append(said, a.entries["a"].Record)
	}
	for _, i := range []int{2, 0, 3, 1} {
		b.Merge(said[i:i+1], dawn)
	}
	require.Equal(t, Joining, b.entries["a"].Announced)
	require.False(t, b.RecordAlive(said[1], "", dawn).Own)
	require.Equal(t, Joining, b.entries["a"].Announced, "gossip that is late has no effect")

	c, err := a.Announce(Joining)
	require.NoError(t, err)
	require.Equal(t, Change{}, c, "the same state")
	for _, s := range []State{Missing, Dead, 77} {
		_, err := a.Announce(s)
		require.ErrorContains(t, err, s.String())
	}
	a.Leave(dawn)
	_, err = a.Announce(Serving)
	require.ErrorIs(t, err, ErrLeft)
}

func TestMemberThatAnswersItsTombstoneIsJoining(t *testing.T) {
	x := NewRoster(rec("x", 2), testForget)
	mustAnnounce(t, x, Serving)
	a := rosterOf("a")
	a.RecordAlive(x.entries["x"].Record, "", dawn)
	_, known := a.Tombstone(x.entries["x"].Record)
	require.False(t, known)
	a.RecordDeath("x", false, dawn)
	_, err := a.Forget("x", dawn)
	require.NoError(t, err)
	mustAnnounce(t, x, Leaving) // an announcement of an epoch that has ended

	a.Merge(x.Records(), dawn)
	b := rosterOf("b")
	b.RecordAlive(rec("x", 2), "", dawn)
	b.RecordDeath("x", false, dawn)
	a.Merge(b.Records(), dawn)
	require.NotEmpty(t, a.RecordAlive(x.entries["x"].Record, "", dawn).Spread, "a node that reports it as alive receives the tombstone")
	require.NotContains(t, memberNames(a), "x", "neither its record nor another roster brings it back")
	tombstone, known := a.Tombstone(x.entries["x"].Record)
	require.True(t, known)
	require.True(t, x.Merge([]Record{tombstone}, dawn).Own)
	require.Equal(t, Joining, x.entries["x"].Announced)
	require.EqualValues(t, 1, x.entries["x"].Epoch)
	require.False(t, x.Merge([]Record{tombstone}, dawn).Own, "it is answered once")
	_, known = a.Tombstone(x.entries["x"].Record)
	require.False(t, known)
	a.Merge(x.Records(), dawn)
	require.Equal(t, Joining, a.entries["x"].Announced)
	require.Contains(t, memberNames(a), "x")
	require.True(t, a.entries["x"].Alive)
}

// If the roster of another node has a new epoch of a member, the member counts as alive for
// unconfirmedTTL, as a new member does. Gossip need not report it meanwhile. The same holds if the
// previous epoch ended long ago.
func TestUnconfirmedEpochCountsAsAliveForTTL(t *testing.T) {
	for name, buried := range map[string]bool{"this node has its tombstone": true, "another node has its tombstone": false} {
		t.Run(name, func(t *testing.T) {
			r := rosterOf("a")
			r.RecordAlive(rec("x", 2), "", dawn)
			r.RecordDeath("x", false, dawn)
			back := dawn.Add(testForget)
			if buried {
				require.True(t, r.Tick(dawn, back, allOnSide).Members)
				require.NotContains(t, memberNames(r), "x")
			}
			alive := rec("x", 2)
			alive.Epoch = 1
			require.True(t, r.Merge([]Record{alive}, back).Members)
			require.False(t, r.Tick(back, back.Add(unconfirmedTTL-1), onlyOnSide("a")).Members)
			require.Contains(t, memberNames(r), "x")
			require.False(t, r.entries["x"].IsDead(back.Add(unconfirmedTTL-1)))
			require.False(t, r.Merge([]Record{alive}, back.Add(unconfirmedTTL-1)).Members, "the same record")

			forgotten := back.Add(unconfirmedTTL + testForget)
			require.True(t, r.Tick(back.Add(unconfirmedTTL-1), forgotten.Add(-1), allOnSide).Members, "it counts as dead")
			require.Contains(t, memberNames(r), "x")
			r.Tick(forgotten.Add(-1), forgotten, allOnSide)
			require.NotContains(t, memberNames(r), "x")
		})
	}
}

func TestLeaverDoesNotAnswerItsTombstone(t *testing.T) {
	a := rosterOf("a")
	require.True(t, a.Leave(dawn).Members)
	require.Empty(t, memberNames(a))
	b := rosterOf("b")
	b.RecordAlive(rec("a", 1), "", dawn)
	b.Merge(a.Records(), dawn)
	require.Equal(t, []string{"b"}, memberNames(b))
	require.False(t, a.Merge(b.Records(), dawn).Own)
	a.Tick(dawn, dawn.Add(100*testForget), allOnSide)
	require.NotContains(t, memberNames(a), "a")
}

func TestReplaceTurnsMemberIntoTombstone(t *testing.T) {
	at := func(name string, born int64) Record { return Record{Name: name, Addr: "x:1", Born: born} }
	for _, born := range []int64{1, 2, 3} { // the clock of x-2 may have been set back
		for _, known := range []bool{false, true} {
			r := rosterOf("a")
			r.RecordAlive(at("x-1", 2), "", dawn)
			if known {
				r.RecordAlive(at("x-2", born), "", dawn)
			}
			c := r.Replace("x-1", dawn)
			require.True(t, c.Members)
			require.Equal(t, "x-1", c.Spread[0].Name)
			r.RecordAlive(at("x-2", born), "", dawn)
			require.Equal(t, []string{"a", "x-2"}, memberNames(r))
			require.Zero(t, r.Replace("x-1", dawn), "it has a tombstone")
		}
	}
	r := rosterOf("a")
	require.Zero(t, r.Replace("a", dawn))
	require.Zero(t, r.Replace("unknown", dawn))
}

// A member may advertise an address at which it does not listen, and two members may
// advertise the same address.
func TestSameAdvertisedAddressReplacesNoMember(t *testing.T) {
	at := func(name string, born int64) Record { return Record{Name: name, Addr: "x:1", Born: born} }
	r := rosterOf("a")
	r.RecordAlive(at("x-1", 2), "", dawn)
	r.RecordDeath("x-1", false, dawn)
	r.RecordAlive(at("x-2", 3), "", dawn)
	r.Merge([]Record{at("x-3", 4)}, dawn)
	require.Equal(t, []string{"a", "x-1", "x-2", "x-3"}, memberNames(r))
	r = NewRoster(at("x-2", 3), testForget)
	r.Merge([]Record{at("x-1", 2)}, dawn)
	require.Equal(t, []string{"x-1", "x-2"}, memberNames(r))
}

func TestUnconfirmedMemberCountsAsDeadAfterTTL(t *testing.T) {
	r := rosterOf("a")
	require.True(t, r.Merge([]Record{rec("b", 2)}, dawn).Members)
	require.False(t, r.entries["b"].IsDead(dawn))
	require.True(t, r.Tick(dawn, dawn.Add(unconfirmedTTL), allOnSide).Members)
	require.True(t, r.entries["b"].IsDead(dawn.Add(unconfirmedTTL)))
	require.True(t, r.RecordAlive(rec("b", 2), "", dawn.Add(unconfirmedTTL)).Members)
	require.False(t, r.entries["b"].IsDead(dawn.Add(unconfirmedTTL)))
}

// Gossip reports a new member late if hundreds of members have just started.
func TestReachedMemberDoesNotCountAsDead(t *testing.T) {
	r := rosterOf("a")
	r.Merge([]Record{rec("b", 2)}, dawn)
	now := dawn
	for _, pace := range []time.Duration{time.Second, time.Second, 10 * time.Second, 10 * time.Second} {
		before := now
		now = now.Add(pace)
		require.False(t, r.Tick(before, now, allOnSide).Members)
		require.False(t, r.entries["b"].IsDead(now))
	}
	require.False(t, r.Tick(now, now.Add(reachedTTL-1), onlyOnSide("a")).Members)
	require.True(t, r.Tick(now, now.Add(reachedTTL), onlyOnSide("a")).Members, "no member of this side reaches it")
	require.True(t, r.entries["b"].IsDead(now.Add(reachedTTL)))

	r.RecordAlive(rec("b", 2), "", now)
	r.RecordDeath("b", false, now)
	r.Tick(now, now.Add(time.Second), allOnSide)
	require.True(t, r.entries["b"].IsDead(now.Add(time.Second)), "gossip has reported its death, and no member reached it")

	r.RecordAlive(rec("b", 2), "", now)
	r.RecordDeath("b", true, now)
	for range 60 {
		before := now
		now = now.Add(time.Second)
		r.Tick(before, now, allOnSide)
		require.False(t, r.entries["b"].IsDead(now), "it answers members of this side")
	}
	r.Tick(now, now.Add(reachedTTL), onlyOnSide("a"))
	require.True(t, r.entries["b"].IsDead(now.Add(reachedTTL)), "gossip was right")
}

// In a large cluster, a record travels over the connections of each member to which it is new.
func TestRecordIsLearnedOnce(t *testing.T) {
	older, newer := rec("b", 2), rec("b", 2)
	newer.Turn = 1
	gone := newer
	gone.Gone = dawn
	later := gone
	later.Gone = dawn.Add(time.Millisecond)
	self := rec("a", 1)
	self.Gone = dawn
	for name, learn := range map[string]func(*Roster, Record) Change{
		"by gossip":         func(r *Roster, m Record) Change { return r.RecordAlive(m, "", dawn) },
		"over a connection": func(r *Roster, m Record) Change { return r.Merge([]Record{m}, dawn) },
	} {
		t.Run(name, func(t *testing.T) {
			r := rosterOf("a")
			require.Equal(t, []Record{older}, learn(r, older).Learned)
			require.Empty(t, learn(r, older).Learned)
			require.Equal(t, []Record{newer}, learn(r, newer).Learned)
			require.Empty(t, learn(r, older).Learned)
			require.Equal(t, []Record{gone}, r.Merge([]Record{gone}, dawn).Learned)
			require.Empty(t, r.Merge([]Record{later}, dawn).Learned, "another copy of the tombstone")
			require.Empty(t, r.Merge([]Record{self}, dawn).Learned, "the record of this node")
			require.Empty(t, learn(r, newer).Learned)
			unknown := gone
			unknown.Name = "c"
			require.Empty(t, r.Merge([]Record{unknown}, dawn).Learned, "the tombstone of an unknown member would return to members that have dropped it")
		})
	}
}

func TestForgetRefusesLivingAndUnknownMembers(t *testing.T) {
	r := rosterOf("a")
	r.RecordAlive(rec("b", 2), "", dawn)
	for _, name := range []string{"a", "b", "unknown"} {
		_, err := r.Forget(name, dawn)
		require.ErrorContains(t, err, name)
	}
}

// crowded returns a roster with more tombstones than it may have. The tombstone of m0 is the oldest.
func crowded() *Roster {
	r := rosterOf("a")
	for i := range maxTombstones + 100 {
		gone := rec(fmt.Sprint("m", i), 2)
		gone.Gone = dawn.Add(time.Duration(i))
		r.Merge([]Record{gone}, dawn)
	}
	return r
}

func TestTombstonesAreBounded(t *testing.T) {
	r := crowded()
	r.Tick(dawn, dawn, allOnSide)
	require.Len(t, r.entries, maxTombstones+1)
	require.NotContains(t, r.entries, "m0", "the oldest go first")
	r.Tick(dawn, dawn.Add(tombstonePatience*testForget+time.Second), allOnSide)
	require.Len(t, r.entries, 1)
	old := rec("b", 2)
	old.Gone = dawn.Add(-tombstonePatience * testForget)
	r.Merge([]Record{old}, dawn)
	require.Len(t, r.entries, 1, "a dropped tombstone does not come back from another roster")
}

// Without the tombstone, the next report of gossip that the member is alive would add it as a new member.
func TestTickKeepsTombstonesOfLivingMembers(t *testing.T) {
	r := crowded()
	r.RecordAlive(rec("m0", 2), "m0:1", dawn)
	r.Leave(dawn.Add(-time.Second))
	for _, now := range []time.Time{dawn, dawn.Add(tombstonePatience*testForget + time.Second)} {
		r.Tick(dawn, now, allOnSide)
		require.Contains(t, r.entries, "a")
		require.Contains(t, r.entries, "m0")
		require.NotContains(t, r.entries, "m1")
	}
	require.Len(t, r.entries, 2)
}

// Members beyond a partition may have forgotten all members of this side. If a node dropped each member
// of its own side when the tombstone of that member arrives, the node would be alone in its roster,
// although the dropped members hold the same counts.
func TestLivingMemberStaysUntilItAnswersItsTombstone(t *testing.T) {
	serving := func() *Roster {
		r := rosterOf("a")
		b := rec("b", 2)
		b.Announced = Serving
		r.RecordAlive(b, "b:1", dawn)
		buried := b
		buried.Gone = dawn
		c := r.Merge([]Record{buried}, dawn)
		require.Equal(t, []Record{buried}, c.Spread, "other members, and b, must receive it")
		require.Equal(t, []string{"a", "b"}, memberNames(r))
		require.Equal(t, b, r.Members()[1].Record, "the record before the tombstone")
		tombstone, ok := r.Tombstone(b)
		require.True(t, ok, "a member that is connected to it sends it")
		require.Equal(t, buried, tombstone)
		return r
	}
	answer := rec("b", 2)
	answer.Epoch = 1
	t.Run("it answers through another member", func(t *testing.T) {
		r := serving()
		require.True(t, r.Merge([]Record{answer}, dawn).Members)
		require.Equal(t, answer, r.Members()[1].Record)
	})
	t.Run("gossip has its answer", func(t *testing.T) {
		r := serving()
		require.True(t, r.RecordAlive(answer, "b:1", dawn).Members)
		require.Equal(t, answer, r.Members()[1].Record)
	})
	t.Run("it dies", func(t *testing.T) {
		r := serving()
		require.True(t, r.RecordDeath("b", false, dawn).Members)
		require.Equal(t, []string{"a"}, memberNames(r))
	})
	t.Run("another member answers at its address", func(t *testing.T) {
		r := serving()
		buried := r.entries["b"].Gone
		require.Equal(t, Change{Members: true}, r.Replace("b", dawn.Add(time.Second)))
		require.Equal(t, []string{"a"}, memberNames(r))
		require.Equal(t, buried, r.entries["b"].Gone)
	})
	t.Run("it neither answers nor dies for 5 s", func(t *testing.T) {
		r := serving()
		require.False(t, r.Tick(dawn, dawn.Add(unansweredTTL-1), allOnSide).Members)
		require.Equal(t, []string{"a", "b"}, memberNames(r))
		require.True(t, r.Tick(dawn, dawn.Add(unansweredTTL), allOnSide).Members)
		require.Equal(t, []string{"a"}, memberNames(r))
	})
	t.Run("a pause of this process does not count", func(t *testing.T) {
		r := serving()
		r.SkipPause(time.Minute, dawn.Add(time.Minute))
		require.False(t, r.Tick(dawn, dawn.Add(time.Minute+unansweredTTL-1), allOnSide).Members)
		require.Equal(t, []string{"a", "b"}, memberNames(r))
	})
	t.Run("a dead member does not stay", func(t *testing.T) {
		r := rosterOf("a")
		r.RecordAlive(rec("b", 2), "b:1", dawn)
		r.RecordDeath("b", false, dawn)
		buried := rec("b", 2)
		buried.Gone = dawn
		r.Merge([]Record{buried}, dawn)
		require.Equal(t, []string{"a"}, memberNames(r))
	})
}

func TestTombstoneIsSpreadOnce(t *testing.T) {
	r := rosterOf("a")
	r.RecordAlive(rec("b", 2), "b:1", dawn)
	gone := rec("b", 2)
	gone.Gone = dawn
	c := r.Merge([]Record{gone}, dawn)
	require.True(t, c.Members)
	require.Equal(t, []Record{gone}, c.Spread)
	gone.Gone = dawn.Add(-time.Millisecond)
	require.Zero(t, r.Merge([]Record{gone}, dawn))
	require.Equal(t, gone.Gone, r.entries["b"].Gone)
}

func TestLeaveSpreadsOneTombstone(t *testing.T) {
	r := rosterOf("a")
	require.True(t, r.Leave(dawn).Own)
	require.Zero(t, r.Leave(dawn.Add(time.Minute)))
	require.Equal(t, dawn, r.entries["a"].Gone)
}

func TestRosterIsBounded(t *testing.T) {
	r := rosterOf("a")
	var members, tombstones []Record
	for i := range MaxRecords + 10 {
		members = append(members, rec(fmt.Sprintf("m%05d", i), 2))
		gone := rec(fmt.Sprintf("t%05d", i), 2)
		gone.Gone = dawn
		tombstones = append(tombstones, gone)
	}
	c := r.Merge(members, dawn)
	require.Equal(t, []int{1 + NewMembers, len(members) - NewMembers}, []int{r.size(), c.Rejected}, "at once")
	require.False(t, r.HasRoom("z", dawn))
	require.True(t, r.HasRoom("m00000", dawn))
	require.Equal(t, Change{Rejected: 1}, r.RecordAlive(rec("z", 2), "z:1", dawn))

	now := dawn.Add(time.Second)
	require.True(t, r.HasRoom("z", now))
	r.Merge(members, now)
	require.Equal(t, 1+NewMembers+NewMembersEach, r.size(), "in a second")

	for range MaxMembers / NewMembers {
		now = now.Add(time.Minute)
		r.Merge(members, now)
	}
	require.Equal(t, MaxMembers, r.size(), "in all")
	require.False(t, r.HasRoom("z", now))
	require.Equal(t, Change{Rejected: 1}, r.RecordAlive(rec("z", 2), "z:1", now))
	require.NotContains(t, r.entries, "z")
	require.True(t, r.RecordAlive(rec("m00000", 2), "m00000:1", now).Members, "a known member comes to life")

	r.Merge(tombstones, now)
	require.Len(t, r.entries, MaxRecords, "with tombstones")
	back := tombstones[0]
	back.Gone, back.Epoch = time.Time{}, 1
	require.Equal(t, 1, r.Merge([]Record{back}, now).Rejected, "no member comes back from its tombstone without room")
	require.Equal(t, 1, r.RecordAlive(back, "t:1", now).Rejected)
	require.Equal(t, MaxMembers, r.size())
}

// The order of the records of a member is total: only equal records compare as equal.
func TestMergeKeepsGreaterRecord(t *testing.T) {
	buried := func(ago time.Duration) func(*Record) { return func(r *Record) { r.Gone = dawn.Add(-ago) } }
	for about, c := range map[string]struct{ less, more func(*Record) }{
		"a later epoch":                     {buried(0), func(r *Record) { r.Epoch = 1 }},
		"a tombstone":                       {func(r *Record) { r.Turn = 9 }, buried(0)},
		"the earlier tombstone":             {buried(time.Second), buried(time.Minute)},
		"a later turn":                      {func(r *Record) { r.Announced = Leaving }, func(r *Record) { r.Turn = 1 }},
		"another state, by mistake":         {func(*Record) {}, func(r *Record) { r.Announced = Serving }},
		"another time of birth, by mistake": {func(*Record) {}, func(r *Record) { r.Born = 8 }},
		"another address, by mistake":       {func(*Record) {}, func(r *Record) { r.Addr = "z:1" }},
		"another region, by mistake":        {func(*Record) {}, func(r *Record) { r.Region = "z" }},
	} {
		less, more := rec("a", 7), rec("a", 7)
		c.less(&less)
		c.more(&more)
		require.Positive(t, more.compare(less), about)
		require.Negative(t, less.compare(more), about)
		require.Zero(t, more.compare(more), about)
		r := rosterOf("self")
		for _, one := range []Record{less, more, less} {
			r.Merge([]Record{one}, dawn)
		}
		require.Equal(t, more, r.entries["a"].Record, about)
	}
}
