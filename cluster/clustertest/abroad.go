package clustertest

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-go/weir/cluster"
)

// far is the other region, which the members of World.New name.
const far = "far"

// replaced bounds the time until a different node of a region answers, on a busy machine: silence is
// detected in 4 s, and an attempt to connect may take 3 s.
const replaced = 12 * time.Second

// testRegions checks the behavior of a Cluster towards other regions.
func testRegions(t *testing.T, inWorld func(t *testing.T, test func(t *testing.T, w World))) {
	for _, c := range []struct {
		promise string
		check   func(t *testing.T, w World, n *node)
	}{
		{"only named other regions have a peer", testUnknownRegions},
		{"a node of another region receives requests and tells", testRegionAsk},
		{"a message to another region has at most MaxMessage bytes", testRegionBounds},
		{"a late answer from another region is dropped", testRegionLateAnswer},
		{"nodes of another region are not in View", testRegionIsNotInView},
		{"a node of the wrong region is refused", func(t *testing.T, w World, n *node) {
			testWrongNode(t, w, n, cluster.Config{Region: "elsewhere"}, "region")
		}},
		{"a node with another Seed is refused", func(t *testing.T, w World, n *node) {
			testWrongNode(t, w, n, cluster.Config{Region: far, Seed: [16]byte{1}}, "seed")
		}},
		{"all addresses of a region are tried", testOneWrongAddress},
		{"a dead node of another region is replaced within seconds", func(t *testing.T, w World, n *node) {
			testReplacement(t, w, n, func(_ int, gone *node) { _ = gone.Close() })
		}},
		{"a leaver of another region is replaced within seconds", func(t *testing.T, w World, n *node) {
			testReplacement(t, w, n, func(_ int, gone *node) { _ = gone.Leave(t.Context()) })
		}},
		{"a frozen node of another region is replaced within seconds", func(t *testing.T, w World, n *node) {
			if w.FreezeAbroad == nil {
				t.Skip("this world cannot freeze nodes")
			}
			testReplacement(t, w, n, func(i int, _ *node) { t.Cleanup(w.FreezeAbroad(i)) })
		}},
		{"names of a region are resolved again", testNewAddress},
		{"Close ends requests to another region", testRegionClose},
	} {
		t.Run(c.promise, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w World) {
				if w.Abroad == nil {
					t.Skip("this world has no other regions")
				}
				n := startMember(t, w, 0)
				defer closeNodes(t, []*node{n})
				n.announce(cluster.Serving)
				c.check(t, w, n)
			})
		})
	}
}

// startFarNodes starts count nodes of the far region, and makes the addresses of the region lead to them.
func startFarNodes(t *testing.T, w World, count int) []*node {
	t.Helper()
	var nodes []*node
	var all []int
	for i := range count {
		nodes = append(nodes, startFarNode(t, w, i, cluster.Config{Region: far}))
		all = append(all, i)
	}
	w.Resolve(all...)
	return nodes
}

// startFarNode starts node i of World.Abroad, which is closed at the end of t.
func startFarNode(t *testing.T, w World, i int, c cluster.Config) *node {
	t.Helper()
	n := startNode(t, w.Abroad(i, c), w)
	t.Cleanup(func() { closeNodes(t, []*node{n}) })
	return n
}

// awaitRegion waits until the region of p answers, and returns the name of the node that has answered.
func awaitRegion(t *testing.T, p cluster.Peer) (name string) {
	t.Helper()
	begun := time.Now()
	for {
		answer, err := p.Ask(t.Context(), []byte("who"), nil, long)
		switch {
		case err == nil:
			return string(answer)
		case !errors.Is(err, cluster.ErrDisconnected) && !errors.Is(err, cluster.ErrTimeout):
			t.Fatal("asking another region:", err)
		case time.Since(begun) > replaced:
			t.Fatalf("another region is not reached after %v: %v", time.Since(begun), err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// awaitRegionNode waits until the region of p answers, and checks that the given node has answered.
func awaitRegionNode(t *testing.T, p cluster.Peer, want *node) {
	t.Helper()
	name := awaitRegion(t, p)
	expect(t, name == want.name(), "%s answered, and not %s", name, want.name())
}

func testUnknownRegions(t *testing.T, w World, n *node) {
	for _, name := range []string{"", "nowhere", n.View().Members[0].Region} {
		p := n.Region(name)
		expect(t, p == nil, "Region(%q) is %v", name, p)
	}
	took := requireError(t.Context(), t, n.Region(far), "who", long, cluster.ErrDisconnected)
	expect(t, took <= long/2, "asking a region without known nodes took %v", took)
	n.Region(far).Send([]byte("tell no node"))
}

func testRegionAsk(t *testing.T, w World, n *node) {
	there := startFarNodes(t, w, 1)[0]
	p := n.Region(far)
	awaitRegionNode(t, p, there)
	requireAnswer(t, p, "where", n.View().Members[0].Region)
	testTellBy(t, n, p, there)
	askAtOnce(t, p, 20, 5)
}

func testRegionBounds(t *testing.T, w World, n *node) {
	startFarNodes(t, w, 1)
	p := n.Region(far)
	awaitRegion(t, p)
	testMessageBound(t, p)
}

func testRegionLateAnswer(t *testing.T, w World, n *node) {
	there := startFarNodes(t, w, 1)[0]
	p := n.Region(far)
	awaitRegion(t, p)
	for range 3 {
		took := requireError(t.Context(), t, p, "hold x", 20*time.Millisecond, cluster.ErrTimeout)
		ensure(t, took >= 20*time.Millisecond && took <= long, "it took %v", took)
		receive(t, there.off, "request")
		echo(t, p, "at once")
		there.release("x")
		echo(t, p, "after all earlier answers")
	}
	if len(n.late) > 0 {
		t.Errorf("HandleLate was called for %q", (<-n.late).request)
	}
	s := n.Stats()
	expect(t, s.Late == 3 && s.Timeouts == 3, "Late is %d, Timeouts is %d", s.Late, s.Timeouts)
}

func testRegionIsNotInView(t *testing.T, w World, n *node) {
	there := startFarNodes(t, w, 1)[0]
	p := n.Region(far)
	awaitRegion(t, p)
	for range 30 {
		echo(t, p, "x")
		time.Sleep(100 * time.Millisecond)
	}
	for _, one := range []*node{n, there} {
		v := one.View()
		expect(t, len(v.Members) == 1 && v.Self == 0 && len(v.Side()) == 1, "a node of a region without other members sees\n%s", viewText(v))
		k := one.heard.Load()
		expect(t, k == 0, "Answered was called %d times", k)
		expect(t, one.Forget(n.name()) != nil, "Forget of a living member returned no error")
	}
	joined := n.Stats().JoinedCount + there.Stats().JoinedCount
	expect(t, joined == 0, "%d members of another region count as joined", joined)
}

func testWrongNode(t *testing.T, w World, n *node, c cluster.Config, reason string) {
	wrong := startFarNode(t, w, 0, c)
	right := startFarNode(t, w, 1, cluster.Config{Region: far})
	w.Resolve(0)
	begun := time.Now()
	for wrong.Stats().Refused[reason] < 3 {
		requireError(t.Context(), t, n.Region(far), "who", long, cluster.ErrDisconnected)
		ensure(t, time.Since(begun) <= replaced, "the wrong node has refused only %v", wrong.Stats().Refused)
		time.Sleep(10 * time.Millisecond)
	}
	v := wrong.View()
	expect(t, len(v.Members) == 1, "the wrong node sees\n%s", viewText(v))
	w.Resolve(1)
	awaitRegionNode(t, n.Region(far), right)
}

func testOneWrongAddress(t *testing.T, w World, n *node) {
	startFarNode(t, w, 0, cluster.Config{Region: "elsewhere"})
	right := startFarNode(t, w, 1, cluster.Config{Region: far})
	for range 2 {
		w.Resolve(0, 1)
		awaitRegionNode(t, n.Region(far), right)
	}
}

// testReplacement removes the node that answers, and waits until the other node answers.
func testReplacement(t *testing.T, w World, n *node, goes func(i int, gone *node)) {
	nodes := startFarNodes(t, w, 2)
	p := n.Region(far)
	first := awaitRegion(t, p)
	i := 0
	if nodes[1].name() == first {
		i = 1
	}
	wait := postponeRequest(t.Context(), t, p, nodes[i], cluster.ErrTimeout)
	begun := time.Now()
	goes(i, nodes[i])
	wait()
	awaitRegionNode(t, p, nodes[1-i])
	if took := time.Since(begun); took > replaced {
		t.Errorf("a different node answered after %v: it must answer within %v", took, replaced)
	} else {
		t.Logf("a different node answered after %v", took)
	}
	echo(t, p, "as before")
}

func testNewAddress(t *testing.T, w World, n *node) {
	nodes := startFarNodes(t, w, 1)
	p := n.Region(far)
	awaitRegion(t, p)
	nodes = append(nodes, startFarNode(t, w, 1, cluster.Config{Region: far}))
	w.Resolve(1)
	echo(t, p, "over the open connection")
	requireNoError(t, "Close", nodes[0].Close())
	awaitRegionNode(t, p, nodes[1])
}

func testRegionClose(t *testing.T, w World, n *node) {
	there := startFarNodes(t, w, 1)[0]
	p := n.Region(far)
	awaitRegion(t, p)
	testCloseDuring(t, n, p, there)
	expect(t, n.Region(far) != nil, "Region is nil after Close")
}
