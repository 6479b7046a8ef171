package detect

import (
	"container/heap"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// crowd is a number of nodes in virtual time, which passes in steps of a millisecond. A node dials,
// sends pings and checks their answers as a link of package cluster does.
type crowd struct {
	t     *testing.T
	rng   *rand.Rand
	now   int // ms
	nodes []*crowdNode
	due   crowdQueue
	seq   int
	cut   func(i, j int) bool // whether no message gets from node i to node j
	sent  int                 // messages
}

type crowdNode struct {
	c                      *Connectivity
	index                  int
	crashed, frozen, stale bool
	roster                 []string
	links                  map[string]*crowdLink
	names                  []string // of links, sorted
	version                uint64   // of the table when rows were last spread
	pings                  uint64
}

// crowdLink is the connection of a node to a member.
type crowdLink struct {
	to      int
	up      bool // there is a session
	dialing bool
	tried   int
	pinged  int
	feed    Feed
	feeding bool // rows will be sent at a time
}

type crowdEvent struct {
	at, seq int
	do      func()
}

type crowdQueue []crowdEvent

func (q crowdQueue) Len() int { return len(q) }
func (q crowdQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q crowdQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *crowdQueue) Push(e any)   { *q = append(*q, e.(crowdEvent)) }
func (q *crowdQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

func newCrowd(t *testing.T, size int) *crowd {
	c := &crowd{t: t, rng: rand.New(rand.NewPCG(1, uint64(size))), cut: func(i, j int) bool { return false }}
	c.join(size)
	return c
}

func (c *crowd) after(ms int, do func()) {
	c.seq++
	heap.Push(&c.due, crowdEvent{c.now + ms, c.seq, do})
}

// run lets the time pass.
func (c *crowd) run(ms int) {
	for end := c.now + ms; ; {
		if len(c.due) == 0 || c.due[0].at > end {
			c.now = end
			return
		}
		e := heap.Pop(&c.due).(crowdEvent)
		c.now = e.at
		e.do()
	}
}

func crowdName(i int) string { return fmt.Sprintf("n%04d", i) }

// join starts nodes, which all learn of each other within half a second.
func (c *crowd) join(n int) {
	for range n {
		name := crowdName(len(c.nodes))
		node := &crowdNode{c: NewConnectivity(name), index: len(c.nodes), links: map[string]*crowdLink{}}
		c.nodes = append(c.nodes, node)
		c.after(c.rng.IntN(100), func() { c.tick(node) })
	}
	var names []string
	for i := range c.nodes {
		names = append(names, crowdName(i))
	}
	for _, node := range c.nodes {
		c.after(c.rng.IntN(500), func() {
			node.roster, node.stale = names, true
			c.refresh(node)
		})
	}
}

func (c *crowd) isRunning(n *crowdNode) bool { return !n.crashed && !n.frozen }

// refresh decides which members a node watches, at most once in 5 ms.
func (c *crowd) refresh(n *crowdNode) {
	if !n.stale || !c.isRunning(n) {
		return
	}
	n.stale = false
	var others []string
	for i, name := range n.roster {
		if i != n.index {
			others = append(others, name)
		}
	}
	n.c.SetMembers(others)
	n.c.Arrange(n.roster, len(n.roster), atMS(c.now))
	for i, name := range n.roster {
		if watched, _ := n.c.IsWatched(name); !watched {
			delete(n.links, name)
		} else if n.links[name] == nil {
			n.links[name] = &crowdLink{to: i}
		}
	}
	n.names = slices.Sorted(maps.Keys(n.links))
	for _, name := range n.names {
		if n.links[name].tried == 0 {
			c.checkLink(n, name)
		}
	}
	c.spread(n)
}

// step applies an event to a node.
func (c *crowd) step(n *crowdNode, changed bool) {
	if changed && !n.stale {
		n.stale = true
		c.after(5, func() { c.refresh(n) })
	}
	if n.version != n.c.Version() {
		c.spread(n)
	}
}

// tick checks the members that a node watches.
func (c *crowd) tick(n *crowdNode) {
	if n.crashed {
		return
	}
	c.after(100, func() { c.tick(n) })
	if n.frozen {
		return
	}
	if c.now%1000 < 100 {
		c.step(n, true)
	}
	for _, name := range n.names {
		if n.links[name] != nil {
			c.checkLink(n, name)
		}
	}
}

func (c *crowd) checkLink(n *crowdNode, name string) {
	l := n.links[name]
	other := c.nodes[l.to]
	if l.up {
		c.step(n, n.c.CheckSilence(name, atMS(c.now), atMS(c.now)))
	}
	if !l.dialing && (!l.up || !n.c.IsConnected(name)) && (l.tried == 0 || c.now-l.tried >= 1000) {
		l.dialing, l.tried = true, c.now
		takes := 850
		if !c.cut(n.index, l.to) && !other.frozen {
			takes = 2
		}
		c.after(takes, func() {
			if l.dialing = false; !c.isRunning(n) || n.links[name] != l {
				return
			}
			if takes == 2 && !other.crashed {
				l.up, l.feed = true, Feed{}
				c.ping(n, name)
				c.spread(n)
			} else if !l.up {
				c.step(n, n.c.RecordFailure(name, atMS(c.now)))
				c.step(n, n.c.SetRefused(name, takes == 2))
			}
		})
	}
	if l.up && (c.now-l.pinged >= 300 || n.c.IsAwaited(name)) {
		c.ping(n, name)
	}
}

// send calls arrive after a millisecond if the receiver runs then, and no cut separates the two nodes.
func (c *crowd) send(from, to *crowdNode, arrive func()) {
	c.sent++
	c.after(1, func() {
		if c.isRunning(to) && !c.cut(from.index, to.index) {
			arrive()
		}
	})
}

func (c *crowd) ping(n *crowdNode, name string) {
	l := n.links[name]
	other := c.nodes[l.to]
	n.pings++
	id := n.pings
	l.pinged = c.now
	n.c.RecordPing(name, id, atMS(c.now))
	_, chosen := n.c.IsWatched(name)
	c.send(n, other, func() {
		self := crowdName(n.index)
		c.step(other, chosen && other.c.RecordWatcher(self, atMS(c.now)))
		c.send(other, n, func() {
			_, _, changed := n.c.RecordPong(name, id, atMS(c.now))
			c.step(n, changed)
		})
	})
}

// spread sends the rows that are due.
func (c *crowd) spread(n *crowdNode) {
	n.version = n.c.Version()
	for _, name := range n.names {
		l := n.links[name]
		if l == nil || !l.up {
			continue
		}
		rows, upTo, wait := n.c.News(&l.feed, name, atMS(c.now))
		if len(rows) > 0 {
			l.feed.Sent(upTo, atMS(c.now))
			other := c.nodes[l.to]
			c.send(n, other, func() { c.step(other, other.c.Merge(crowdName(n.index), rows)) })
			_, _, wait = n.c.News(&l.feed, name, atMS(c.now))
		}
		if wait > 0 && !l.feeding {
			l.feeding = true
			c.after(int(wait/time.Millisecond), func() {
				l.feeding = false
				if n.links[name] == l && c.isRunning(n) {
					c.spread(n)
				}
			})
		}
	}
}

// crash ends a process. Its kernel closes its connections.
func (c *crowd) crash(i int) {
	c.nodes[i].crashed = true
	for _, n := range c.nodes {
		if l := n.links[crowdName(i)]; l != nil && l.up && !c.cut(n.index, i) {
			l.up = false
			c.step(n, n.c.RecordFailure(crowdName(i), atMS(c.now)))
		}
	}
}

// awaitAgreement runs the nodes until the side of each running node is correct. It returns the number of
// milliseconds that this took.
func (c *crowd) awaitAgreement(most int) int {
	began := c.now
	for ; c.now-began <= most; c.run(20) {
		if c.wrongSide() == "" {
			return c.now - began
		}
	}
	c.t.Fatalf("after %d ms: %s", c.now-began, c.wrongSide())
	return 0
}

// wrongSide returns how the side of a node differs from the truth.
func (c *crowd) wrongSide() string {
	var names []string
	for i := range c.nodes {
		names = append(names, crowdName(i))
	}
	for _, n := range c.nodes {
		if !c.isRunning(n) {
			continue
		}
		if n.stale {
			c.refresh(n)
		}
		for _, o := range c.nodes {
			m := n.c.members[names[o.index]]
			want := c.isRunning(o) && !c.cut(n.index, o.index)
			if o != n && (m != nil && m.reached) != want {
				return fmt.Sprintf("node %d has %d on its side: %v", n.index, o.index, !want)
			}
		}
	}
	return ""
}

// perNode returns how many messages a running node sends in each second, in the given time.
func (c *crowd) perNode(ms int) float64 {
	running := 0
	for _, n := range c.nodes {
		if c.isRunning(n) {
			running++
		}
	}
	c.sent = 0
	c.run(ms)
	return float64(c.sent) / float64(running) / (float64(ms) / 1000)
}

var crowdSizes = flag.String("crowds", "10,30,60", "the sizes of the clusters of TestLargeClusterAgreesAtBoundedCost, separated by commas")

// With -crowds 300,1000 it takes some minutes.
func TestLargeClusterAgreesAtBoundedCost(t *testing.T) {
	for text := range strings.SplitSeq(*crowdSizes, ",") {
		size, err := strconv.Atoi(text)
		require.NoError(t, err)
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			c := newCrowd(t, size)
			c.run(500)
			t.Logf("they meet within %d ms", c.awaitAgreement(3000))
			c.run(lingerMs)
			idle := c.perNode(5000)
			t.Logf("idle, a node sends %.0f messages a second", idle)
			require.LessOrEqual(t, idle, 60.0)

			c.crash(size / 2)
			t.Logf("a crash is known by all within %d ms", c.awaitAgreement(500))
			after := c.perNode(5000)
			t.Logf("after a crash, a node sends %.0f messages a second", after)
			require.LessOrEqual(t, after, 200.0)

			c.nodes[size/3].frozen = true
			t.Logf("a freeze is known by all within %d ms", c.awaitAgreement(2000))
			c.run(1000)
			c.nodes[size/3].frozen = false
			t.Logf("a thaw is known by all within %d ms", c.awaitAgreement(2500))

			half := func(i int) bool { return i%2 == 0 }
			c.cut = func(i, j int) bool { return half(i) != half(j) }
			t.Logf("a split in halves is known by all within %d ms", c.awaitAgreement(2000))
			during := c.perNode(10_000)
			t.Logf("in a split, a node sends %.0f messages a second", during)
			require.LessOrEqual(t, during, 200.0)
			for _, n := range c.nodes {
				require.LessOrEqual(t, len(n.links), 40, "not everybody dials everybody")
			}
			require.Empty(t, c.wrongSide())
			c.cut = func(i, j int) bool { return false }
			t.Logf("a heal is known by all within %d ms", c.awaitAgreement(2000))

			for i := range size / 3 {
				c.crash(3 * i)
			}
			t.Logf("a loss of a third is known by all within %d ms", c.awaitAgreement(2000))
			c.run(10_000)
			require.Empty(t, c.wrongSide())
			c.join(min(50, size/2))
			c.run(500)
			t.Logf("joins are known by all within %d ms", c.awaitAgreement(2000))
		})
	}
}

const lingerMs = int(lingerTime / time.Millisecond)

// A node watches about eight members, whatever the size of the cluster, and they watch it.
func TestNeighborsWatchEachOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var names []string
		for i := range rapid.IntRange(smallCluster+1, 200).Draw(t, "members") {
			names = append(names, crowdName(i))
		}
		base := rapid.IntRange(0, len(names)-1).Draw(t, "base")
		watchedBy := func(self int) (watched []string) {
			c := NewConnectivity(names[self])
			c.SetMembers(names)
			c.Arrange(names, len(names), atMS(0))
			for _, name := range names {
				if _, chosen := c.IsWatched(name); chosen {
					watched = append(watched, name)
				}
			}
			return watched
		}
		neighbors := watchedBy(base)
		if len(neighbors) < 2 || len(neighbors) > 2*cycles {
			t.Fatalf("%d neighbors", len(neighbors))
		}
		for _, name := range neighbors {
			if other := slices.Index(names, name); !slices.Contains(watchedBy(other), names[base]) {
				t.Fatalf("%s does not watch %s", name, names[base])
			}
		}
	})
}

// A connected member that is no neighbor any more is watched for 5 s, and one that watches this node for
// 3 s after its last ping.
func TestFormerNeighborIsWatchedFor5s(t *testing.T) {
	var names []string
	for i := range 40 {
		names = append(names, crowdName(i))
	}
	c := NewConnectivity(names[0])
	arrange := func(size, ms int) {
		c.SetMembers(names[:size])
		c.Arrange(names[:size], size, atMS(ms))
	}
	arrange(20, 0)
	former := names[1]
	for _, name := range names[:20] {
		if _, chosen := c.IsWatched(name); chosen {
			former = name
			c.RecordPing(name, 1, atMS(1))
			c.RecordPong(name, 1, atMS(1))
			if arrange(40, 2); !c.members[name].chosen {
				break
			}
			arrange(20, 3)
		}
	}
	for _, step := range []struct {
		ms      int
		event   string
		watched bool
		proven  bool // in the row of this node
	}{
		{10, "", true, true}, {5001, "", true, true}, {5010, "", false, false},
		{6000, "watches", true, false}, {6001, "pong", true, true}, {8999, "", true, true}, {9000, "", false, false},
	} {
		switch step.event {
		case "watches":
			require.True(t, c.RecordWatcher(former, atMS(step.ms)))
		case "pong":
			c.RecordPing(former, uint64(step.ms), atMS(step.ms))
			c.RecordPong(former, uint64(step.ms), atMS(step.ms))
		}
		arrange(40, step.ms)
		watched, chosen := c.IsWatched(former)
		require.Equal(t, step.watched, watched, step.ms)
		require.False(t, chosen)
		require.Equal(t, step.proven, slices.Contains(c.rows[c.id].Connected, MemberID(former)), step.ms)
	}
}

// A view of 1,000 members is built in less than 5 ms.
func BenchmarkConnectionsOfThousandMembers(b *testing.B) {
	var names []string
	for i := range 1000 {
		names = append(names, crowdName(i))
	}
	c := NewConnectivity(names[0])
	c.SetMembers(names)
	for i, name := range names {
		o := NewConnectivity(name)
		o.SetMembers(names)
		o.Arrange(names, len(names), atMS(0))
		for k, to := range names {
			if watched, _ := o.IsWatched(to); watched {
				o.RecordPing(to, uint64(k+1), atMS(0))
				o.RecordPong(to, uint64(k+1), atMS(0))
			}
		}
		if i == 0 {
			c = o
		}
		c.Merge(name, rowsOf(o))
	}
	b.ReportAllocs()
	for b.Loop() {
		c.SetMembers(names)
		c.Arrange(names, len(names), atMS(0))
		c.Connections(names)
	}
}
