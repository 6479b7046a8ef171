package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/cluster/clustertest"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// lagging is a simulated cluster in which the view of each node may be older than the membership.
type lagging struct {
	members []cluster.Member // the current membership
	views   map[string]*View
	now     int64
	born    int
}

func (m *lagging) announce(name string, s cluster.State) {
	for i := range m.members {
		if m.members[i].Name == name {
			m.members[i].Announced, m.members[i].State = s, s
		}
	}
}

// count returns the number of members that have announced a state.
func (m *lagging) count(s cluster.State) (n int) {
	for _, o := range m.members {
		if o.Announced == s {
			n++
		}
	}
	return n
}

func (m *lagging) remove(name string) {
	m.members = slices.DeleteFunc(m.members, func(o cluster.Member) bool { return o.Name == name })
}

func (m *lagging) addJoiner() {
	m.born++
	name := fmt.Sprintf("node-%02d", m.born)
	m.members = append(m.members, cluster.Member{Name: name, State: cluster.Joining, Announced: cluster.Joining})
	m.views[name] = New(m.now, &cluster.View{Self: -1}, Terms{}, nil)
	m.updateView(name)
}

// updateView makes the next view of a node from the current membership.
func (m *lagging) updateView(name string) {
	c := &cluster.View{Self: -1, Members: slices.Clone(m.members)}
	for i, o := range c.Members {
		if o.Name == name {
			c.Self = i
		}
	}
	c.Connected = clustertest.Mesh(len(c.Members))
	c.Direct = slices.Repeat([]bool{true}, len(c.Members))
	m.views[name] = New(m.now, c, Terms{Replicas: 1}, m.views[name])
}

// isKnown reports whether the views of all members that serve or leave include a joiner. A member whose
// view does not include the joiner cannot have sent it the counts that it needs.
func (m *lagging) isKnown(name string) bool {
	for _, o := range m.members {
		if v := m.views[o.Name]; o.Announced != cluster.Joining && v != nil {
			if _, known := v.Named[NameHash(name)]; !known {
				return false
			}
		}
	}
	return true
}

// addMember adds a node that joins. Once all nodes know the node, it announces that it serves.
func (m *lagging) addMember() (name string) {
	m.addJoiner()
	for other := range m.views {
		m.updateView(other)
	}
	name = fmt.Sprintf("node-%02d", m.born)
	m.announce(name, cluster.Serving)
	return name
}

// transferExcess transfers the ranges that a node holds to their owners, according to the view of the node.
func (m *lagging) transferExcess(name string) {
	v := m.views[name]
	excess := v.Ranges(Held).Minus(v.Assigned)
	for _, i := range v.Points {
		receiver := v.Members[i].Name
		r := v.ownedBy(i).Intersect(excess)
		if i == v.Self || len(r) == 0 || m.views[receiver] == nil {
			continue
		}
		m.views[name] = m.views[name].TransferRanges(r, receiver, m.now)
		m.views[receiver] = m.views[receiver].ReceiveRanges(r)
	}
}

// locate asks the other nodes for the ranges that the named node waits for, and applies the answers.
func (m *lagging) locate(name string) {
	v := m.views[name]
	ranges := v.RangesToLocate()
	if len(ranges) == 0 {
		return
	}
	var said []*Location
	for i, o := range v.Members {
		if x := m.views[o.Name]; x != nil && v.AnswersLocate(i) && x.AssignsRanges(v.Hashes[v.Self], ranges) {
			has := x.LocalRanges(ranges, m.now, func(countsync.Member) bool { return false })
			m.views[o.Name] = x.ReleaseVacant(ranges.Minus(has))
			said = append(said, &Location{NameHash(o.Name), has, x.IsUnclear(m.now)})
		}
	}
	m.views[name] = v.ApplyLocations(said, ranges, m.now)
}

// newMisdirectedTransfer returns three nodes, two of which have joined at the same time. The first of the two
// has received ranges of the second from a node that did not know yet that the second serves.
func newMisdirectedTransfer() *lagging {
	m := &lagging{views: make(map[string]*View)}
	m.addMember()
	m.updateView("node-01")
	m.addJoiner()
	m.addJoiner()
	for name := range m.views {
		m.updateView(name)
	}
	m.announce("node-02", cluster.Serving)
	m.updateView("node-01")
	m.announce("node-03", cluster.Serving)
	m.updateView("node-02")
	m.transferExcess("node-01")
	return m
}

func (m *lagging) stateOf(name string) cluster.State {
	for _, o := range m.members {
		if o.Name == name {
			return o.Announced
		}
	}
	return cluster.Dead
}

// viewAt returns the view of a node at the given second. Each word of the argument members describes
// a member. The first letter is the name of the member, and determines when the member started. The
// node itself has the mark *, or is the first member. A member with the mark - is not connected, a
// member with + joins, and a member with < leaves.
func viewAt(second int64, before *View, members string) *View {
	x := &cluster.View{}
	for i, word := range strings.Fields(members) {
		m := cluster.Member{Name: word[:1], Born: time.Unix(int64(word[0]), 0), State: cluster.Serving, Announced: cluster.Serving}
		for _, mark := range word[1:] {
			switch mark {
			case '*':
				x.Self = i
			case '+':
				m.State, m.Announced = cluster.Joining, cluster.Joining
			case '<':
				m.State, m.Announced = cluster.Leaving, cluster.Leaving
			}
		}
		x.Members = append(x.Members, m)
		x.Direct = append(x.Direct, !strings.Contains(word, "-"))
	}
	x.Connected = make([][]int, len(x.Members))
	return New(second*int64(time.Second), x, Terms{Replicas: 1}, before)
}

// entriesFor returns a copy of the entry for each range.
func entriesFor(ranges countsync.Ranges, e Entry) (entries []Entry) {
	for _, e.Range = range ranges {
		entries = append(entries, e)
	}
	return entries
}

// Members join and leave in any order, and each node may see the changes late. At any time, exactly
// one node holds each hash. In the end, that node is the owner of the hash.
func TestExactlyOneNodeHasAuthority(t *testing.T) {
	testenv.SkipOneGoroutine(t)
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &lagging{views: make(map[string]*View)}
		m.addJoiner()
		m.announce("node-01", cluster.Serving)
		m.updateView("node-01")
		requireOneHolder := func(when string) {
			var all countsync.Ranges
			for name, v := range m.views {
				twice := all.Intersect(v.Ranges(Held))
				require.Empty(t, twice, "%s: %s holds a range of another holder", when, name)
				all = all.Union(v.Ranges(Held))
			}
			require.True(t, all.Equal(countsync.All()), "%s: no node holds a range", when)
		}
		names := func() (names []string) {
			for name := range m.views {
				names = append(names, name)
			}
			slices.Sort(names)
			return names
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			m.now += int64(10 * time.Millisecond)
			name := rapid.SampledFrom(names()).Draw(t, "node")
			serving, joining := m.count(cluster.Serving), m.count(cluster.Joining)
			switch step := rapid.SampledFrom([]string{"join", "serve", "leave", "goodbye", "look", "look", "hand", "hand", "locate", "wait"}).Draw(t, "step"); step {
			case "join":
				if len(m.views) < 6 {
					m.addJoiner()
				}
			case "serve":
				m.updateView(name)
				v := m.views[name]
				if m.stateOf(name) == cluster.Joining && m.isKnown(name) && (serving > 0 || v.Eldest() == v.Self) {
					m.announce(name, cluster.Serving)
					m.updateView(name)
				}
			case "leave":
				if m.stateOf(name) == cluster.Serving && serving+joining > 1 {
					m.announce(name, cluster.Leaving)
					m.updateView(name)
				}
			case "goodbye":
				if m.stateOf(name) == cluster.Leaving && len(m.views[name].Ranges(Held)) == 0 {
					m.remove(name)
					delete(m.views, name)
				}
			case "look":
				m.updateView(name)
			case "hand":
				m.transferExcess(name)
			case "locate":
				m.locate(name)
			case "wait": // before time passes, all views are updated
				for _, name := range names() {
					m.updateView(name)
				}
				for end := m.now + int64(movingFor); m.now < end; m.now += int64(250 * time.Millisecond) {
					for _, name := range names() {
						m.locate(name)
					}
				}
			}
			requireOneHolder("on the way")
		}
		if v := m.views[names()[0]]; m.count(cluster.Serving) == 0 {
			eldest := v.Members[v.Eldest()].Name
			m.updateView(eldest)
			m.announce(eldest, cluster.Serving)
		}
		for range 4 * len(m.views) {
			for _, name := range names() {
				m.updateView(name)
				m.transferExcess(name)
			}
		}
		requireOneHolder("in the end")
		for name, v := range m.views {
			require.True(t, v.Settled, "%s does not hold its ranges", name)
		}
	})
}

// A new member replaces a crashed node while the other members still wait for the ranges of the
// crashed node. The new member waits for the members that take these ranges.
func TestReplacementReceivesRangesOfCrashedNode(t *testing.T) {
	m := &lagging{views: make(map[string]*View)}
	for range 3 {
		m.addMember()
		for range 3 {
			for other := range m.views {
				m.updateView(other)
				m.transferExcess(other)
			}
		}
	}
	settle := func() {
		for range 4 {
			for name := range m.views {
				m.updateView(name)
				m.transferExcess(name)
			}
		}
	}
	m.remove("node-03")
	delete(m.views, "node-03")
	settle()
	m.addMember() // node-04
	settle()
	m.now += int64(HoldDown)
	settle()
	for name, v := range m.views {
		if !v.Settled || v.HasAny(awaitedOrVacant) {
			t.Errorf("%s does not hold what the ring gives it, and waits for %v", name, v.Ranges(awaitedOrVacant))
		}
	}
}

// A node waits for a live member as long as the member reports that it has the ranges. Once no
// member has the ranges, the node recalls the copies of all members, and takes the ranges after
// HoldDown. If a member does not know about recent events, the node takes them later.
func TestNodeTakesRangeThatNoMemberHas(t *testing.T) {
	for _, unclear := range []bool{false, true} {
		m := &lagging{views: make(map[string]*View)}
		for range 2 {
			name := m.addMember()
			m.updateView("node-01")
			m.updateView(name)
		}
		waits := func() *View { return m.views["node-02"] }
		require.False(t, waits().Settled)
		m.now += int64(time.Hour)
		require.False(t, waits().Stale(m.now))
		m.updateView("node-02")
		m.locate("node-02")
		require.Equal(t, []string{"node-01"}, waits().Givers())
		require.Empty(t, waits().Ranges(Held))

		holder := m.views["node-01"].WithStates(waits().Assigned)
		if unclear {
			holder = holder.WithStates(waits().Assigned, Entry{State: Abandoned})
			holder.Healed = m.now
		}
		m.views["node-01"] = holder
		m.locate("node-02")
		require.True(t, waits().Recalls, "other members may have copies")
		require.Empty(t, waits().Ranges(Held), "the node waits for these copies")
		if unclear {
			require.Equal(t, waits().Assigned, waits().Ranges(abandonedOrClaimed))
			before := waits()
			m.locate("node-02")
			require.Same(t, before, waits(), "the answer of the other member is still unclear")
			m.now += int64(Patience)
			m.updateView("node-01")
			m.locate("node-02")
		}
		require.False(t, waits().Lasts())
		m.now += int64(HoldDown)
		require.True(t, waits().Stale(m.now))
		m.updateView("node-02")
		require.True(t, waits().Settled)
	}
}

// If a member no longer has a range, another member may have received the range meanwhile. The node
// then waits for that member.
func TestNodeWaitsForMemberThatReceivedRange(t *testing.T) {
	m := newMisdirectedTransfer()
	m.updateView("node-03")
	m.now += int64(movingFor)
	v := m.views["node-03"]
	require.False(t, m.views["node-01"].AssignsRanges(v.Hashes[v.Self], v.Assigned), "in the ring of node-01, another member is the owner, so node-01 does not answer")
	m.updateView("node-01")
	require.True(t, m.views["node-01"].AssignsRanges(v.Hashes[v.Self], v.Assigned))
	given := m.views["node-02"].Ranges(Held).Intersect(v.Assigned)
	require.NotEmpty(t, given)
	require.Equal(t, "node-01", v.Members[v.holder(bucket.ID{Hi: given[0].Last})].Name)
	m.locate("node-03")
	v = m.views["node-03"]
	for _, e := range pick(nil, v.entries, awaitedOrVacant) {
		require.Equal(t, e.Member == "node-02", len(given.Intersect(countsync.Ranges{e.Range})) > 0)
	}
	require.Empty(t, v.Ranges(Held))
}

// A member that has not answered may have ranges that no other member has.
func TestRangeIsVacantAfterAllMembersHaveAnswered(t *testing.T) {
	v := viewOf(0, nil, "111", "111", "111")
	v = v.WithStates(v.Assigned, Entry{State: Awaited, Member: v.Members[1].Name, Until: Forever})
	nothing := func(i int) *Location { return &Location{Member: v.Hashes[i]} }
	require.Same(t, v, v.ApplyLocations([]*Location{nothing(1)}, v.Assigned, 1))
	require.Same(t, v, v.ApplyLocations([]*Location{nothing(1), {Member: v.Hashes[2], Has: nil}}, nil, 1), "the members were asked about no ranges")
	all := v.ApplyLocations([]*Location{nothing(1), nothing(2)}, v.Assigned, 1)
	require.Equal(t, entriesFor(v.Assigned, Entry{State: Vacant, Until: 1 + int64(HoldDown)}), all.entries)
	has := v.ApplyLocations([]*Location{{Member: v.Hashes[2], Has: v.Assigned}}, v.Assigned, 1)
	require.Equal(t, entriesFor(v.Assigned, Entry{State: Awaited, Member: v.Members[2].Name, Until: Forever}), has.entries)
}

// If no member serves, the leavers hold all ranges until a joiner serves. The joiner waits for these
// ranges, and asks the leavers until then.
func TestFirstServingJoinerAwaitsRangesOfLeavers(t *testing.T) {
	v := viewAt(3601, viewAt(3600, nil, "a b c+*"), "a< b< c+*")
	require.Empty(t, v.Points)
	one := viewAt(3602, v, "a< b< c*")
	require.Equal(t, []string{"a", "b"}, one.Givers())
	require.Equal(t, countsync.All(), one.Ranges(Awaited))
	require.False(t, one.HasAny(Held))
	before := viewAt(3600, nil, "a b")
	for i, r := range map[int]countsync.Ranges{0: before.ownedBy(0), 1: before.ownedBy(1)} {
		require.Equal(t, i, one.Route(bucket.ID{Hi: r[0].Last}, 0).To)
	}
	gone := viewAt(3604, viewAt(3603, one, "c*"), "c*")
	require.True(t, gone.Settled)
	require.Equal(t, countsync.All(), viewAt(3602, v, "c*").Ranges(Held), "no leaver is left")
}

// A delayed frame can transfer authority to a node that has left. The node hands this authority
// over, and asks the owner until then.
func TestLeaverPassesReceivedAuthorityOn(t *testing.T) {
	members := []cluster.Member{{Name: "other", State: cluster.Serving, Announced: cluster.Serving}}
	c := &cluster.View{Self: -1, Members: members, Connected: [][]int{nil}, Direct: []bool{true}}
	v := New(int64(time.Hour), c, Terms{Replicas: 1}, nil).ReceiveRanges(countsync.All())
	id := bucket.ID{Hi: 1, Lo: 1}
	require.Equal(t, v.Hashes[0], v.Answers(id))
	v.Audiences()
	require.NotEmpty(t, v.Targets(nil, id))
}

// The authority of a node that began apart is void as soon as the node meets members that serve.
func TestNodeThatStartedAloneGivesUpAuthority(t *testing.T) {
	m := &lagging{views: make(map[string]*View)}
	first := m.addMember()
	m.updateView(first)
	before := m.views[first]
	require.True(t, before.beganAlone && before.Ranges(Held).Equal(countsync.All()))
	stranger := cluster.Member{Name: "stranger", State: cluster.Serving, Announced: cluster.Serving}
	m.members = append(m.members, stranger)
	c := &cluster.View{Self: 0, Members: m.members, Direct: []bool{true, true}, Connected: clustertest.Mesh(2)}
	v := New(m.now, c, Terms{Replicas: 1}, before)
	require.False(t, v.beganAlone)
	require.True(t, before.MeetsApart(v))
	require.Empty(t, v.Ranges(Held))
	require.True(t, v.Ranges(abandonedOrClaimed).Equal(countsync.All()))
}

// If two sides that have never met have several members each, the members of the side that began
// later give up their ranges when the sides meet.
func TestYoungerOfTwoSidesGivesUpAuthority(t *testing.T) {
	member := func(name string, born int64) cluster.Member {
		return cluster.Member{Name: name, Born: time.Unix(born, 0), State: cluster.Serving, Announced: cluster.Serving}
	}
	a, b, c, d := member("a", 1), member("b", 5), member("c", 3), member("d", 4)
	again := a // a was removed from the roster, and has joined the other side since
	again.Epoch = 1
	see := func(self string, before *View, members ...cluster.Member) *View {
		x := &cluster.View{Members: members, Connected: clustertest.Mesh(len(members))}
		for i, m := range members {
			if m.Name == self {
				x.Self = i
			}
			x.Direct = append(x.Direct, true)
		}
		return New(int64(time.Hour), x, Terms{Replicas: 1}, before)
	}
	for _, c := range []struct {
		self   string
		before []cluster.Member
		after  []cluster.Member
		apart  bool
	}{
		{"c", []cluster.Member{c, d}, []cluster.Member{a, b, c, d}, true},
		{"c", []cluster.Member{c, d}, []cluster.Member{b, c, d}, false}, // c and d keep their ranges until they meet a, the eldest
		{"a", []cluster.Member{a, b}, []cluster.Member{a, b, c, d}, false},
		{"b", []cluster.Member{a, b}, []cluster.Member{a, b, c, d}, false},
		{"c", []cluster.Member{c, d}, []cluster.Member{again, c, d}, false},
		{"a", []cluster.Member{again, b}, []cluster.Member{again, b, c, d}, true},
	} {
		before := see(c.self, nil, c.before...)
		before = before.ReceiveRanges(before.Assigned)
		next := see(c.self, before, c.after...)
		require.Equal(t, c.apart, before.MeetsApart(next), "%v", c)
		require.Equal(t, c.apart, len(next.Ranges(Held)) == 0, "%v", c)
		require.Equal(t, c.apart, next.Ranges(abandonedOrClaimed).Equal(countsync.All()), "%v", c)
	}
}

// A member that began apart first meets only the members to which it is connected. From then on,
// the member also knows the other members of that side. When it meets these later, it keeps the
// ranges that it has received in the meantime.
func TestNodeGivesUpAuthorityOnceToEachSide(t *testing.T) {
	apart := viewAt(3600, nil, "d")
	require.True(t, apart.beganAlone)
	met := viewAt(3600, apart, "b- c d*")
	require.True(t, apart.MeetsApart(met))
	require.Equal(t, []string{"b", "c", "d"}, met.Ring.Members())
	given := met.ReceiveRanges(met.Assigned)
	whole := viewAt(3600, given, "b c d*")
	require.False(t, given.MeetsApart(whole))
	require.Equal(t, given.Ranges(Held), whole.Ranges(Held))
	require.True(t, given.MeetsApart(viewAt(3600, given, "a b c d*")), "a is unknown to the members that were met before")
}

// The ranges of a member that leaves on another side go to members of that side. A member that
// learns of the leave before it is connected to another member does not take the ranges.
func TestRangesOfLeaverBeyondCutAreNotTaken(t *testing.T) {
	whole := viewOf(0, nil, "1111", "1111", "1111", "1111")
	apart := viewOf(2, whole, "1000", "0100", "0010", "0001")
	apart = viewOf(2+int64(HoldDown), apart, "1000", "0100", "0010", "0001")
	require.True(t, apart.Away[3])
	c := *apart.View
	c.Members = slices.Clone(c.Members)
	c.Members[3].Announced = cluster.Leaving
	v := New(3+int64(HoldDown), &c, Terms{Replicas: 1}, apart)
	left := apart.ownedBy(3)
	require.NotEmpty(t, v.ownedBy(0).Intersect(left), "the ring assigns some ranges of the leaver to this node")
	require.Empty(t, v.Ranges(Held).Intersect(left))
	require.Empty(t, left.Minus(v.Ranges(abandonedOrClaimed)))
}

// The next member on this side may stand in before it receives copies, because copies go to the
// members before it in ring order until these are away. Until it receives copies, it does not get
// authority.
func TestAuthorityGoesToMemberWithCopies(t *testing.T) {
	whole := viewOf(0, nil, "1111", "1111", "1111", "1111")
	one := viewOf(2, whole, "1101", "1101", "0010", "1101")
	both := viewOf(2+int64(HoldDown), one, "1100", "1100", "0010", "0001") // 2 is away, 3 is lost
	id := idInOrder(both, 2, 3, 1)
	require.Equal(t, []bool{false, false, true, false}, both.Away)
	require.Equal(t, 1, both.StandIn(id, -1))
	arc := countsync.NewRanges(countsync.Range{First: id.Hi, Last: id.Hi})
	require.NotContains(t, both.ReceiveRanges(arc).Targets(nil, id), both.Hashes[1])
	require.Empty(t, both.Answerers(arc)[1])
	away := viewOf(2+2*int64(HoldDown), both, "1100", "1100", "0010", "0001")
	require.Contains(t, away.ReceiveRanges(arc).Targets(nil, id), away.Hashes[1])
	require.Equal(t, arc, away.Answerers(arc)[1])
}

// The remaining ranges of a lost leaver may go to a member that is missing as well. No member of
// this side takes them in that case.
func TestLostLeaverRangesStayAbandonedDuringPartition(t *testing.T) {
	begin := func() *View {
		v := viewAt(100, nil, "a b c")
		return v.ReceiveRanges(v.Assigned)
	}

	waits := viewAt(101, begin(), "a b c<")
	require.True(t, waits.HasAny(Awaited))
	missing := waits.Assigned.Minus(waits.Ranges(Held))
	apart := viewAt(103, viewAt(101, waits, "a b- c<-"), "a b- c<-")
	require.Equal(t, waits.Ranges(Held), apart.Ranges(Held))
	require.Empty(t, missing.Minus(apart.Ranges(abandonedOrClaimed)), "the missing ranges were awaited from c")
	require.True(t, apart.Recalls, "other members may have copies")
	require.False(t, viewAt(104, apart, "a b- c<-").Recalls, "members are asked once for their copies")
	together := viewAt(103, viewAt(101, waits, "a b c<-"), "a b c<-")
	require.Equal(t, together.Assigned, together.Ranges(Held), "c is away and no other member is missing, so that a takes the ranges")

	cut := viewAt(103, viewAt(101, begin(), "a b- c-"), "a b- c-")
	later := viewAt(104, cut, "a b- c<-")
	require.Equal(t, cut.Ranges(Held), later.Ranges(Held))
	require.Empty(t, missing.Minus(later.Ranges(abandonedOrClaimed)), "c was lost before it announced that it leaves")
}

// A holder sends the counts of its ranges itself, so the scans of other nodes leave them out. Once this
// node receives ranges, it sends their counts to all successors, even if it has sent them before.
func TestGainedRangesAreSentAgainToEachSuccessor(t *testing.T) {
	const second = int64(time.Second)
	v := viewAt(100, nil, "a b c d")
	v = v.ReceiveRanges(v.Assigned)
	v.Heal(0, 100*second) // this node does not know all events beyond a cut
	v = viewAt(101, v, "a b c")
	require.NotEmpty(t, v.Ranges(abandonedOrClaimed), "the ranges of d are abandoned")
	waits := viewAt(102, v, "a b c+")
	require.Equal(t, []string{"c"}, waits.Givers(), "a awaits from c the ranges that it owns now")
	gained := waits.Ranges(awaitedOrVacant)
	holds := waits.ReceiveRanges(gained)
	b := holds.Hashes[1]
	require.Zero(t, len(gained.Minus(holds.Audiences()[b])), "b is a replica of the gained ranges")
	anew := holds.OwedAnew(holds.Audiences(), waits, waits.Audiences())
	require.Zero(t, len(gained.Minus(anew[b])))
	require.Zero(t, len(anew[b].Minus(gained)), "no other ranges are owed again")
}

// withAbandoned returns the view of a at 104 s. The member c ended while b was away, and now b is
// back.
func withAbandoned(joiner string) *View {
	v := viewAt(100, nil, "a b c"+joiner)
	v = v.ReceiveRanges(v.Assigned)
	v = viewAt(102, viewAt(101, v, "a b- c"+joiner), "a b- c"+joiner)
	return viewAt(104, viewAt(103, v, "a b-"+joiner), "a b"+joiner)
}

// While a node waits for the end of abandoned ranges, another member may get authority over them.
// So the node asks all members, and takes a range only if no member has it.
func TestOwnerTakesAbandonedRangesThatNoMemberHas(t *testing.T) {
	v := withAbandoned("")
	require.NotEmpty(t, v.Ranges(abandonedOrClaimed))
	require.Empty(t, v.Ranges(Claimed))
	const healed = 104*int64(time.Second) + int64(Patience)
	require.False(t, v.Lasts())
	require.True(t, v.Stale(healed))
	v = viewAt(healed/int64(time.Second), v, "a b")
	require.False(t, v.Stale(healed))
	require.NotEmpty(t, v.Ranges(Claimed))
	require.Equal(t, v.Ranges(Claimed), v.RangesToLocate())
	require.Equal(t, v.Assigned, v.Ranges(Held).Union(v.Ranges(Claimed)))

	asked := v.Ranges(Claimed)
	none := &Location{Member: v.Hashes[1]}
	taken := v.ApplyLocations([]*Location{none}, asked, healed)
	require.Equal(t, asked, taken.Ranges(abandonedOrClaimed), "the ranges stay abandoned, so that no node joins")
	require.Same(t, taken, taken.ApplyLocations([]*Location{none}, asked, healed))
	require.Equal(t, entriesFor(asked, Entry{State: Vacant, Until: healed + int64(HoldDown)}), pick(nil, taken.entries, awaitedOrVacant))
	taken = viewAt(healed/int64(time.Second)+1, taken, "a b")
	require.True(t, taken.Settled)
	require.Empty(t, taken.Ranges(abandonedOrClaimed))

	has := v.ApplyLocations([]*Location{{Member: v.Hashes[1], Has: asked}}, asked, healed)
	require.Empty(t, has.Ranges(Claimed))
	require.Equal(t, entriesFor(asked, Entry{State: Awaited, Member: "b", Until: Forever}), pick(nil, has.entries, awaitedOrVacant))
	require.Same(t, v, v.ApplyLocations([]*Location{{Member: v.Hashes[1], Unclear: true}}, asked, healed))
	require.Same(t, v, v.ApplyLocations(nil, asked, healed), "a member has not answered")
}

// A joiner does not know of abandoned ranges, and waits for the member that stood in for them. The
// member that stood in claims only the ranges that it owns. The joiner asks all members about the
// other ranges, and takes them.
func TestJoiningOwnerReceivesRangesThatWereAbandoned(t *testing.T) {
	v := withAbandoned(" d+")
	abandoned := v.Ranges(abandonedOrClaimed).Intersect(v.Assigned)
	healed := 104 + int64(Patience/time.Second)
	for _, ends := range []*View{
		viewAt(healed, v, "a b d"),
		viewAt(healed, viewAt(105, v, "a b d"), "a b d"),
	} {
		require.Equal(t, ends.Ranges(Claimed), ends.Ranges(abandonedOrClaimed))
		require.NotEmpty(t, ends.Ranges(Claimed))
		require.Equal(t, ends.Assigned, ends.Ranges(Held).Intersect(ends.Assigned).Union(ends.Ranges(Claimed)))
		require.Empty(t, abandoned.Intersect(ends.Ranges(Held)))
		now := healed * int64(time.Second)
		rest := abandoned.Minus(ends.Assigned)
		require.NotEmpty(t, rest, "the ring assigns some abandoned ranges to the joiner")
		require.True(t, ends.AssignsRanges(NameHash("d"), rest))
		require.Empty(t, ends.LocalRanges(rest, now, func(countsync.Member) bool { return false }))
		require.False(t, ends.IsUnclear(now))
	}
}

// The ranges of a member that is away go to the next member. If the next member is lost or gone
// when the first member comes back, other members with copies send the counts to the first member.
func TestReturningMemberReceivesCountsOfItsSuccessor(t *testing.T) {
	const away = 2 + int64(HoldDown)
	whole := viewOf(1, nil, "1111", "1111", "1111", "1111")
	whole = whole.ReceiveRanges(whole.Assigned)
	cut := []string{"1101", "1101", "0010", "1101"}
	apart := viewOf(away, viewOf(2, whole, cut...), cut...)
	sent := func(v *View) countsync.Ranges { return v.ownedBy(2).Intersect(v.Audiences()[v.Hashes[2]]) }

	require.Empty(t, sent(viewOf(away+1, apart, "1111", "1111", "1111", "1111")))
	lost := viewOf(away+1, apart, "1110", "1110", "1110", "0001")
	require.Equal(t, lost.ownedBy(2), sent(lost))
	gone := viewOf(away+2, viewOf(away+1, apart, "110", "110", "001"), "111", "111", "111")
	require.Equal(t, gone.ownedBy(2).Minus(gone.Ranges(Held)), sent(gone))

	pair := viewOf(1, nil, "11", "11")
	pair = viewOf(2, pair.ReceiveRanges(pair.Assigned), "10", "01")
	stranger := viewOf(3, pair, "101", "010", "101")
	require.Equal(t, stranger.ownedBy(2), sent(stranger), "the lost member was to transfer these ranges")
}

// A node that began alone meets two members while a third node joins. The members transfer to this
// node its own ranges. When the ranges are no longer abandoned, this node takes no range of the
// joiner.
func TestYieldingNodeTakesNoRangesOfNewcomer(t *testing.T) {
	m := &lagging{views: make(map[string]*View)}
	names := []string{m.addMember(), m.addMember()}
	settle := func() {
		for range 3 {
			for _, name := range names {
				m.updateView(name)
				m.transferExcess(name)
			}
		}
	}
	settle()
	began := cluster.Member{Name: "node-03", State: cluster.Serving, Announced: cluster.Serving, Born: time.Unix(1, 0)}
	m.views[began.Name] = New(m.now, &cluster.View{Members: []cluster.Member{began}, Direct: []bool{true}, Connected: [][]int{nil}}, Terms{}, nil)
	m.members, m.born = append(m.members, began), 3
	m.addJoiner()
	m.now = int64(time.Minute)
	m.updateView(began.Name)
	require.Equal(t, countsync.All(), m.views[began.Name].Ranges(abandonedOrClaimed))
	names = append(names, began.Name, "node-04")
	m.announce("node-04", cluster.Serving)
	settle()
	m.now += int64(Patience)
	var all countsync.Ranges
	for _, name := range names {
		m.updateView(name)
		require.Empty(t, all.Intersect(m.views[name].Ranges(Held)), name)
		all = all.Union(m.views[name].Ranges(Held))
		require.True(t, m.views[name].Settled, name)
	}
}

// If the abandoned ranges of a joiner end later than the abandoned ranges of the other members,
// the joiner waits for the members that have them by then, and claims none.
func TestJoinerTakesNoAbandonedRanges(t *testing.T) {
	v := viewAt(3600, nil, "a+ b")
	v = v.WithStates(countsync.All(), Entry{State: Abandoned})
	v.Healed = int64(time.Hour)
	v = viewAt(3601, v, "a b")
	require.Empty(t, v.Ranges(abandonedOrClaimed))
	v = viewAt(3600+int64(Patience/time.Second), v, "a b")
	require.Empty(t, v.Ranges(Held))
	require.True(t, v.HasAny(Awaited))

	v = viewAt(3600, nil, "a+ b")
	v = v.WithStates(countsync.All(), Entry{State: Abandoned})
	v.Healed = int64(time.Hour)
	v = viewAt(3600+int64(Patience/time.Second), v, "a b")
	require.Empty(t, v.Ranges(Claimed))
	require.True(t, v.HasAny(Awaited))
}

// When a missing member leaves the roster, each of its ranges is claimed only by the member to which
// the ring now assigns the range. A member that stood in while it was briefly not connected to that
// member does not claim the range.
func TestOneNodeInheritsRangesOfMissingMember(t *testing.T) {
	var claimed, lost, joined countsync.Ranges
	for self := range 2 { // a and b, while c is dead
		both, flaps := []string{"a* b", "a b*"}[self], []string{"a* b-", "a- b*"}[self] // with flaps, a and b are not connected to each other
		v := viewAt(100, nil, both+" c d+")
		v = v.ReceiveRanges(v.Assigned)
		lost = v.ownedBy(2)
		v = viewAt(102, viewAt(101, v, both+" c- d+"), both+" c- d+")
		alone := viewAt(102, v, flaps+" c- d+")
		whole := viewAt(103, alone, both+" d")
		require.Zero(t, len(lost.Intersect(whole.Ranges(Held))), "this node may not know the holder yet")
		whole = viewAt(103+int64(Patience/time.Second), whole, both+" d")
		require.Zero(t, len(lost.Intersect(whole.Ranges(Held))), "the other members were not asked")
		require.Zero(t, len(claimed.Intersect(whole.Ranges(Claimed))), "only one node claims a range")
		claimed = claimed.Union(whole.Ranges(Claimed))
		joined = whole.ownedBy(2)
		require.Empty(t, viewAt(103, alone, flaps+" d").Ranges(Claimed), "a member is missing")
	}
	require.Zero(t, len(lost.Minus(claimed).Minus(joined)))
}

// A member that began apart is not treated as a leaver: such a member never had ranges of this
// side to transfer.
func TestUnknownMemberIsNotAwaited(t *testing.T) {
	v := viewAt(100, nil, "a b")
	v = v.ReceiveRanges(v.Assigned)
	v = viewAt(102, viewAt(101, v, "a b-"), "a b-")
	v = viewAt(103, v, "a b- s-")
	v = viewAt(103, v, "a s-")
	require.False(t, v.HasAny(awaitedOrVacant))
	require.Equal(t, countsync.All(), v.Ranges(Held))
}

// Two members join at the same time. The first receives ranges of the second from a member that did
// not know yet that the second serves. The checks of these ranges find the holder.
func TestChecksFollowMovedAuthority(t *testing.T) {
	m := newMisdirectedTransfer()
	m.updateView("node-01")
	m.updateView("node-03")

	given := m.views["node-02"].Ranges(Held).Intersect(m.views["node-03"].Assigned)
	require.NotEmpty(t, given)
	for _, r := range given {
		a := wire.Ask{Limit: &bucket.Limit{Rate: 1, Per: time.Second}, ID: bucket.ID{Hi: r.Last}}
		v := m.views["node-03"]
		to := v.Route(a.ID, m.now).To
		for flags := uint8(0); to >= 0; {
			v = m.views[v.Members[to].Name]
			h := wire.Header{Op: wire.OpTake, Flags: flags, Asks: 1, To: v.Hashes[v.Self]}
			to, flags = v.Onward(h, a.Append(h.Append(nil)), m.now)
		}
		require.Equal(t, "node-02", v.Members[v.Self].Name, "the holder of the range answers")
	}
}

// A joiner holds no ranges, wherever it was before. So no node has to wait for the ranges of a
// joiner that is connected again.
func TestReturningJoinerIsNotAwaited(t *testing.T) {
	for other, healing := range map[string]bool{"b+": false, "b": true} {
		v := viewAt(100, nil, "a "+other)
		v = viewAt(102, viewAt(101, v, "a "+other+"-"), "a "+other+"-")
		require.True(t, v.Away[1])
		v = viewAt(103, v, "a "+other)
		require.Equal(t, healing, v.isHealing(103*int64(time.Second)), other)
	}
}
