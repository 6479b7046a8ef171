// Package clustertest tests implementations of cluster.Cluster against the
// documentation of the interface.
package clustertest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/cluster"
)

// World is the environment of the clusters of a test.
type World struct {
	// Size is the maximum number of members: 1 for a cluster of one, otherwise
	// at least 3.
	Size int
	// New creates member i, from 0 to Size-1, and does not start it. It is called
	// once for each i in this order. Each member must be able to join by member 0.
	New func(i int) cluster.Cluster
	// News is the maximum time until all members know a change of membership. Zero
	// means 30 s.
	News time.Duration
	// Freeze, if not nil, holds the messages to and from member i until thaw is
	// called.
	Freeze func(i int) (thaw func())

	// Abroad, if not nil, creates a node like New, but with the Region and the Seed of
	// c, and does not start it. It is called once for each i, from 0. The members of New
	// then have a Region, and a region "far" among their Regions.
	Abroad func(i int, c cluster.Config) cluster.Cluster
	// Resolve makes the addresses of region "far" lead to the given nodes of Abroad
	// only. Before the first call they lead to no node.
	Resolve func(nodes ...int)
	// FreezeAbroad, if not nil, is Freeze for a node of Abroad.
	FreezeAbroad func(i int) (thaw func())
}

// Run checks an implementation. For each test, Run calls inWorld, which must call test with
// a new World: directly, or within a testing/synctest bubble.
func Run(t *testing.T, inWorld func(t *testing.T, test func(t *testing.T, w World))) {
	given := inWorld
	inWorld = func(t *testing.T, test func(t *testing.T, w World)) {
		given(t, func(t *testing.T, w World) {
			w.News = cmp.Or(w.News, 30*time.Second)
			test(t, w)
		})
	}
	for _, c := range []struct {
		promise string
		members int
		check   func(t *testing.T, nodes []*node)
	}{
		{"a view exists after Start", 1, testStart},
		{"Forget refuses living members", 1, testForgetLiving},
		{"a node that has left is not in its own view", 1, testLeaveAlone},
		{"members connect to each other", 3, testMeeting},
		{"each request gets its own answer", 3, testAsk},
		{"both ends know the protocol of their connection", 3, testProtocol},
		{"answers may arrive later, in any order", 2, testLaterReplies},
		{"a message has at most MaxMessage bytes", 2, testBounds},
		{"a tell arrives", 2, testTell},
		{"a canceled request leaves its member connected", 2, testCancel},
		{"a request that times out leaves its member connected", 2, testTimeout},
		{"a late answer is passed to HandleLate once", 2, testLateAnswer},
		{"a member that has left can still send requests", 3, testLeave},
		{"a closed member dies and can be forgotten", 3, testDeath},
		{"Announce accepts three states until the node leaves", 1, testAnnouncedStates},
		{"an announcement reaches all members within a second", 3, testAnnouncement},
		{"Answered is called only while a member answers", 2, testAnswered},
		{"a closed cluster answers ErrClosed", 2, testClose},
	} {
		t.Run(c.promise, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w World) { c.check(t, startMembers(t, w, c.members)) })
		})
	}
	t.Run("a closed cluster does not start", func(t *testing.T) {
		inWorld(t, testStartAfterClose)
	})
	t.Run("a living member that is forgotten returns as Joining", func(t *testing.T) {
		inWorld(t, testReturnAfterForget)
	})
	testRegions(t, inWorld)
}

// long is the maximum time of an action that takes almost no time on an idle machine.
const long = 10 * time.Second

// node is the handler of a cluster.
type node struct {
	cluster.Cluster
	t     *testing.T
	news  time.Duration
	after chan struct{} // has a buffer of one; signals that the view may have changed

	inChanged atomic.Int32
	overlaps  atomic.Int32
	heard     atomic.Int64   // number of calls of Answered
	told      chan string    // the tells that have arrived, each after the name of its sender
	late      chan late      // the calls of HandleLate
	answers   sync.WaitGroup // counts the goroutines that answer requests with the verb "soon"

	mu    sync.Mutex
	views []*cluster.View          // the views at the calls of Changed
	texts []string                 // the text of each view at that time
	lives []uint64                 // the epoch of the node at each call of Answered
	put   map[string]cluster.Later // the answers of the postponed requests, by name
	off   chan string              // names of the postponed requests
}

type late struct {
	from            cluster.Peer
	request, answer string
}

// startMembers starts the given number of members, and waits until all of them serve and are connected to
// each other. The members end with t.
func startMembers(t *testing.T, w World, members int) []*node {
	t.Helper()
	if members > w.Size {
		t.Skipf("a cluster of at most %d", w.Size)
	}
	nodes := make([]*node, members)
	for i := range nodes {
		nodes[i] = startMember(t, w, i)
	}
	t.Cleanup(func() { closeNodes(t, nodes) })
	for _, n := range nodes {
		n.announce(cluster.Serving)
	}
	for _, n := range nodes {
		n.await("all members are connected", func(v *cluster.View) bool { return isWhole(v, members) })
	}
	return nodes
}

func startMember(t *testing.T, w World, i int) *node {
	t.Helper()
	return startNode(t, w.New(i), w)
}

func startNode(t *testing.T, c cluster.Cluster, w World) *node {
	t.Helper()
	n := &node{
		Cluster: c, t: t, news: w.News,
		after: make(chan struct{}, 1),
		told:  make(chan string, 100),
		late:  make(chan late, 100),
		put:   make(map[string]cluster.Later),
		off:   make(chan string, 100),
	}
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	requireNoError(t, "Start", n.Start(ctx, n))
	v := n.View()
	ensure(t, v != nil, "View is nil after Start")
	self := v.Members[v.Self]
	expect(t, self.State == cluster.Joining && self.Announced == cluster.Joining, "a member started as %+v", self)
	return n
}

// requireNoError ends the test if a call has failed.
func requireNoError(t *testing.T, called string, err error) {
	t.Helper()
	ensure(t, err == nil, "%s: %v", called, err)
}

// expect reports an error if a condition does not hold.
func expect(t *testing.T, holds bool, format string, args ...any) {
	t.Helper()
	if !holds {
		t.Errorf(format, args...)
	}
}

// ensure fails the test at once if a condition does not hold.
func ensure(t *testing.T, holds bool, format string, args ...any) {
	t.Helper()
	if !holds {
		t.Fatalf(format, args...)
	}
}

// closeNodes closes all nodes and performs the checks of every test.
func closeNodes(t *testing.T, nodes []*node) {
	t.Helper()
	var closing sync.WaitGroup
	for i, n := range nodes {
		closing.Go(func() {
			err := n.Close()
			expect(t, err == nil, "member %d: Close: %v", i, err)
		})
	}
	closing.Wait()
	for i, n := range nodes {
		n.answers.Wait()
		k := n.overlaps.Load()
		expect(t, k == 0, "member %d: %d calls of Changed overlapped another", i, k)
		for j, v := range n.views {
			if now := viewText(v); now != n.texts[j] {
				t.Errorf("member %d: a view changed after it was shown, from\n%s\nto\n%s", i, n.texts[j], now)
			}
			problem := viewProblem(v)
			expect(t, problem == "", "member %d: %s in\n%s", i, problem, n.texts[j])
		}
	}
}

// Changed implements cluster.Handler.
func (n *node) Changed() {
	if n.inChanged.Add(1) > 1 {
		n.overlaps.Add(1)
	}
	defer n.inChanged.Add(-1)
	for range 10 {
		runtime.Gosched()
	}
	if v := n.View(); v != nil {
		n.mu.Lock()
		n.views = append(n.views, v)
		n.texts = append(n.texts, viewText(v))
		n.mu.Unlock()
	}
	select {
	case n.after <- struct{}{}:
	default:
	}
}

// Answered implements cluster.Handler.
func (n *node) Answered() {
	n.heard.Add(1)
	if v := n.View(); v.Self >= 0 {
		n.mu.Lock()
		n.lives = append(n.lives, v.Members[v.Self].Epoch)
		n.mu.Unlock()
	}
}

// Serve implements cluster.Handler. A request is a verb and an argument:
//
//	echo x   is answered with x at once
//	soon x   is answered with x from another goroutine
//	hold x   is postponed until release(x)
//	tell x   is passed on to told
//	large    is answered with MaxMessage bytes
//	who      is answered with the name of the node
//	where    is answered with the region of the asking node
//	speaks   is answered with the protocol of the connection
func (n *node) Serve(b *cluster.Batch) {
	for i, request := range b.Requests {
		verb, rest, _ := strings.Cut(string(request), " ")
		switch verb {
		case "echo":
			body := []byte(rest)
			b.Reply(i, body)
			clear(body) // Reply has copied it
		case "soon":
			later := b.Defer(i)
			n.answers.Go(func() { later([]byte(rest)) })
		case "hold":
			n.mu.Lock()
			n.put[rest] = b.Defer(i)
			n.mu.Unlock()
			n.off <- rest
		case "tell":
			n.told <- b.From + " " + rest
			b.Reply(i, []byte("a tell has no answer"))
		case "large":
			b.Reply(i, large)
		case "who":
			if v := n.View(); v.Self >= 0 {
				b.Reply(i, []byte(v.Members[v.Self].Name))
			} else {
				b.Reply(i, []byte("a node that has left"))
			}
		case "where":
			b.Reply(i, []byte(b.Region))
		case "speaks":
			b.Reply(i, []byte(fmt.Sprint(b.Protocol)))
		case "":
			b.Reply(i, nil)
		}
		clear(request) // the bytes of a request are valid only until Serve returns
	}
}

// HandleLate implements cluster.Handler.
func (n *node) HandleLate(from cluster.Peer, request, answer []byte) {
	n.late <- late{from, string(request), string(answer)}
}

var large = bytes.Repeat([]byte("x"), cluster.MaxMessage)

// release answers a postponed request.
func (n *node) release(name string) {
	n.mu.Lock()
	later := n.put[name]
	delete(n.put, name)
	n.mu.Unlock()
	later([]byte("released " + name))
}

// await waits until the view satisfies a condition. After each failure it waits for Changed.
func (n *node) await(what string, ok func(v *cluster.View) bool) {
	n.t.Helper()
	patience := time.NewTimer(n.news)
	defer patience.Stop()
	for {
		v := n.View()
		if problem := viewProblem(v); problem != "" {
			n.t.Fatalf("%s in\n%s", problem, viewText(v))
		}
		if ok(v) {
			return
		}
		select {
		case <-n.after:
		case <-patience.C:
			n.t.Fatalf("not after %v: %s; or Changed was not called; the view is\n%s", n.news, what, viewText(n.View()))
		}
	}
}

// announce makes n announce s, and checks that the view of n shows s as the state of n.
func (n *node) announce(s cluster.State) {
	n.t.Helper()
	requireNoError(n.t, fmt.Sprintf("Announce(%v)", s), n.Announce(s))
	m := n.View().Members[n.View().Self]
	ensure(n.t, m.State == s && m.Announced == s, "after Announce(%v) the node sees itself as %+v", s, m)
	n.await("Changed was called", func(v *cluster.View) bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return slices.ContainsFunc(n.views, func(v *cluster.View) bool {
			return v.Self >= 0 && v.Members[v.Self].State == s
		})
	})
}

// member returns the named member in the view of n, which must contain it.
func (n *node) member(name string) cluster.Member {
	n.t.Helper()
	v := n.View()
	i := slices.IndexFunc(v.Members, func(m cluster.Member) bool { return m.Name == name })
	ensure(n.t, i >= 0, "%s is not in the view\n%s", name, viewText(v))
	return v.Members[i]
}

func receive[T any](t *testing.T, from <-chan T, what string) (got T) {
	t.Helper()
	patience := time.NewTimer(long)
	defer patience.Stop()
	select {
	case got = <-from:
	case <-patience.C:
		t.Fatalf("no %s has arrived", what)
	}
	return got
}

func (n *node) name() string {
	n.t.Helper()
	v := n.View()
	ensure(n.t, v.Self >= 0, "the node is not in its own view")
	return v.Members[v.Self].Name
}

func (n *node) index(name string) int {
	return slices.IndexFunc(n.View().Members, func(m cluster.Member) bool { return m.Name == name })
}

// peer returns the Peer of n for another node.
func (n *node) peer(other *node) cluster.Peer {
	n.t.Helper()
	return n.member(other.name()).Peer
}

// awaitConnection waits until n itself is connected to the named member.
func (n *node) awaitConnection(name string) {
	n.t.Helper()
	n.await("it is connected to "+name, func(v *cluster.View) bool {
		i := n.index(name)
		return v == n.View() && i >= 0 && v.Direct[i]
	})
}

// requireAnswer sends a request and checks the answer.
func requireAnswer(t *testing.T, p cluster.Peer, request, want string) {
	t.Helper()
	got, err := p.Ask(t.Context(), []byte(request), nil, long)
	ensure(t, err == nil && string(got) == want, "asked to %.40q, got %d bytes, %.40q, and %v", request, len(got), got, err)
}

func echo(t *testing.T, p cluster.Peer, body string) {
	t.Helper()
	requireAnswer(t, p, "echo "+body, body)
}

// requireError sends a request and expects any of the given errors. It returns how long the request took.
func requireError(ctx context.Context, t *testing.T, p cluster.Peer, request string, wait time.Duration, want ...error) (took time.Duration) {
	t.Helper()
	begun := time.Now()
	_, err := p.Ask(ctx, []byte(request), nil, wait)
	took = time.Since(begun)
	ensure(t, slices.ContainsFunc(want, func(one error) bool { return errors.Is(err, one) }), "asked to %.40q, got %v after %v, and not %v", request, err, took, want)
	return took
}

// postponeRequest sends a request to n by p. It returns once n has received the request and postponed the
// answer. The function wait waits until Ask returns, and checks that the error of Ask is want.
func postponeRequest(ctx context.Context, t *testing.T, p cluster.Peer, n *node, want error) (wait func()) {
	t.Helper()
	var asker sync.WaitGroup
	asker.Go(func() {
		_, err := p.Ask(ctx, []byte("hold x"), nil, long)
		expect(t, errors.Is(err, want), "an ask that was under way got %v, and not %v", err, want)
	})
	receive(t, n.off, "request")
	return asker.Wait
}

func viewText(v *cluster.View) string {
	var b strings.Builder
	for i, m := range v.Members {
		fmt.Fprintf(&b, "%d %s %s %s %v %v announced %v epoch %d connected to", i, m.Name, m.Addr, m.Region, m.Born.UnixNano(), m.State, m.Announced, m.Epoch)
		for _, j := range v.Connected[i] {
			fmt.Fprintf(&b, " %d", j)
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprintf(&b, "self %d, direct %v", v.Self, v.Direct)
	return b.String()
}

// viewProblem returns a description of the problem of an invalid view.
func viewProblem(v *cluster.View) string {
	if v == nil {
		return "the view is nil"
	}
	n := len(v.Members)
	if len(v.Connected) != n || len(v.Direct) != n || v.Stalled != nil && len(v.Stalled) != n || v.Self < -1 || v.Self >= n {
		return fmt.Sprintf("Connected has %d rows, Direct has %d, Stalled has %d, Self is %d for %d members", len(v.Connected), len(v.Direct), len(v.Stalled), v.Self, n)
	}
	for i, m := range v.Members {
		switch {
		case v.Stalls(i) && (!v.Direct[i] || i == v.Self):
			return fmt.Sprintf("member %d has stalled, and is not connected", i)
		case i > 0 && v.Members[i-1].Name >= m.Name:
			return "Members is not sorted by name"
		case (m.Peer == nil) != (i == v.Self):
			return "Peer is not nil for the node itself alone"
		case m.Region != v.Members[0].Region:
			return fmt.Sprintf("members of region %s and also of %s", v.Members[0].Region, m.Region)
		case !slices.IsSorted(v.Connected[i]) || slices.Contains(v.Connected[i], i) || slices.Max(append(v.Connected[i], 0)) >= n:
			return fmt.Sprintf("row %d of Connected is %v for %d members", i, v.Connected[i], n)
		case m.State != m.Announced && m.State != cluster.Missing && m.State != cluster.Dead,
			m.Announced != cluster.Joining && m.Announced != cluster.Serving && m.Announced != cluster.Leaving:
			return fmt.Sprintf("member %d is %v, and has announced %v", i, m.State, m.Announced)
		}
	}
	for j, direct := range v.Direct {
		if v.Self >= 0 && direct != v.IsConnected(v.Self, j) {
			return "Direct is not the node's own row of Connected"
		}
	}
	return ""
}

// isWhole reports whether there are n members that all serve and are connected to each other.
func isWhole(v *cluster.View, n int) bool {
	return len(v.Members) == n &&
		!slices.ContainsFunc(v.Members, func(m cluster.Member) bool { return m.State != cluster.Serving }) &&
		!slices.ContainsFunc(v.Connected, func(row []int) bool { return len(row) < n-1 })
}

func testStart(t *testing.T, nodes []*node) {
	self := nodes[0].View().Members[0]
	expect(t, self.Name != "" && !self.Born.IsZero(), "the node sees itself as %+v", self)
}

func testForgetLiving(t *testing.T, nodes []*node) {
	for _, name := range []string{"", "nobody", nodes[0].name()} {
		expect(t, nodes[0].Forget(name) != nil, "Forget(%q) returned no error", name)
	}
}

func testLeaveAlone(t *testing.T, nodes []*node) {
	n := nodes[0]
	for range 2 {
		requireNoError(t, "Leave", n.Leave(t.Context()))
	}
	n.await("it has left", func(v *cluster.View) bool { return v.Self == -1 && len(v.Members) == 0 })
	for range 2 {
		requireNoError(t, "Close", n.Close())
	}
}

func testStartAfterClose(t *testing.T, w World) {
	c := w.New(0)
	requireNoError(t, "Close", c.Close())
	if err := c.Start(t.Context(), &node{t: t}); !errors.Is(err, cluster.ErrClosed) {
		_ = c.Close()
		t.Fatal("Start after Close:", err)
	}
}

func testMeeting(t *testing.T, nodes []*node) {
	for _, n := range nodes {
		for i, m := range n.View().Members {
			first := nodes[0].View().Members[i]
			expect(t, m.Name == first.Name && m.Addr == first.Addr && m.Region == first.Region && m.Born.Equal(first.Born) && m.Addr != "", "a node sees %+v, a different node %+v", first, m)
		}
		expect(t, n.Forget(nodes[0].name()) != nil, "Forget of a living member returned no error")
		for end := time.Now().Add(n.news); len(n.Stats().Unanswered) > 0; time.Sleep(10 * time.Millisecond) {
			ensure(t, !time.Now().After(end), "all members are connected, and these entries of Join have led to no member: %v", n.Stats().Unanswered)
		}
	}
}

func testProtocol(t *testing.T, nodes []*node) {
	for _, from := range nodes {
		for _, to := range nodes {
			if from == to {
				continue
			}
			here, there := from.peer(to).Protocol(), to.peer(from).Protocol()
			expect(t, here == there && here.Version != 0, "%s speaks %v to %s, which speaks %v", from.name(), here, to.name(), there)
			requireAnswer(t, from.peer(to), "speaks", fmt.Sprint(here))
		}
	}
}

func testAsk(t *testing.T, nodes []*node) {
	for _, from := range nodes {
		for _, to := range nodes {
			if from != to {
				echo(t, from.peer(to), "from "+from.name()+" to "+to.name())
			}
		}
	}
	p := nodes[0].peer(nodes[1])
	requireAnswer(t, p, "where", nodes[0].View().Members[0].Region)
	buffer := append(make([]byte, 0, 100), "old content"...)
	got, err := p.Ask(t.Context(), []byte("echo answer"), buffer, long)
	ensure(t, err == nil && string(got) == "answer", "got %q and %v", got, err)
	expect(t, &got[0] == &buffer[0], "Ask did not append to the buffer")
	requireAnswer(t, p, "", "")
	askAtOnce(t, p, 64, 20)
}

// askAtOnce makes callers send requests at the same time, a number of times each, and checks that each
// receives its own answers.
func askAtOnce(t *testing.T, p cluster.Peer, callers, times int) {
	t.Helper()
	var asking sync.WaitGroup
	for i := range callers {
		asking.Go(func() {
			var answer []byte
			for j := range times {
				verb := []string{"echo", "soon"}[j%2]
				want := fmt.Sprintf("%d of %d", j, i)
				var err error
				answer, err = p.Ask(t.Context(), []byte(verb+" "+want), answer, long)
				if err != nil || string(answer) != want {
					t.Errorf("asked for %q, got %q and %v", want, answer, err)
					return
				}
			}
		})
	}
	asking.Wait()
}

func testLaterReplies(t *testing.T, nodes []*node) {
	p := nodes[0].peer(nodes[1])
	var callers sync.WaitGroup
	names := []string{"a", "b", "c"}
	for _, name := range names {
		callers.Go(func() {
			got, err := p.Ask(t.Context(), []byte("hold "+name), nil, long)
			expect(t, err == nil && string(got) == "released "+name, "asked for %s, got %q and %v", name, got, err)
		})
		receive(t, nodes[1].off, "request")
	}
	for _, name := range []string{"b", "c", "a"} {
		nodes[1].release(name)
	}
	callers.Wait()
}

func testBounds(t *testing.T, nodes []*node) { testMessageBound(t, nodes[0].peer(nodes[1])) }

func testMessageBound(t *testing.T, p cluster.Peer) {
	echo(t, p, string(large[len("echo "):]))
	requireAnswer(t, p, "large", string(large))
	requireError(t.Context(), t, p, string(large)+"x", long, cluster.ErrTooLarge)
	p.Send(append(large, 'x'))
	echo(t, p, "as before")
}

func testTell(t *testing.T, nodes []*node) {
	testTellBy(t, nodes[0], nodes[0].peer(nodes[1]), nodes[1])
}

// testTellBy sends a tell to another node by p.
func testTellBy(t *testing.T, n *node, p cluster.Peer, other *node) {
	p.Send([]byte("tell news"))
	got := receive(t, other.told, "tell")
	expect(t, got == n.name()+" news", "told %q", got)
}

func testCancel(t *testing.T, nodes []*node) {
	p := nodes[0].peer(nodes[1])
	ctx, cancel := context.WithCancel(t.Context())
	wait := postponeRequest(ctx, t, p, nodes[1], context.Canceled)
	cancel()
	wait()
	echo(t, p, "at once")
	requireError(ctx, t, p, "echo never", long, context.Canceled)
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	requireError(ctx, t, p, "hold overdue", long, context.DeadlineExceeded)
	echo(t, p, "at once")
	s := nodes[0].Stats()
	expect(t, s.Timeouts == 0, "%d timeouts were counted", s.Timeouts)
}

func testTimeout(t *testing.T, nodes []*node) {
	p := nodes[0].peer(nodes[1])
	for try, wait := range []time.Duration{50 * time.Millisecond, 50 * time.Millisecond, 500 * time.Millisecond, time.Second} {
		took := requireError(t.Context(), t, p, fmt.Sprint("hold ", try), wait, cluster.ErrTimeout)
		ensure(t, took >= wait && took <= wait+long, "it took %v, and not %v", took, wait)
		s := nodes[0].Stats()
		ensure(t, s.Timeouts == uint64(try+1), "Timeouts is %d after %d", s.Timeouts, try+1)
		v := nodes[0].View()
		ensure(t, isWhole(v, 2), "after a wait of %v: %s", wait, viewText(v))
		echo(t, p, "at once")
	}
}

func testLateAnswer(t *testing.T, nodes []*node) {
	p := nodes[0].peer(nodes[1])
	ctx, cancel := context.WithCancel(t.Context())
	wait := postponeRequest(ctx, t, p, nodes[1], context.Canceled)
	cancel() // a deadline might end before the ask is sent
	wait()
	requireError(t.Context(), t, p, "hold second", 20*time.Millisecond, cluster.ErrTimeout)
	receive(t, nodes[1].off, "request")
	names := []string{"x", "second"}
	for _, x := range names {
		nodes[1].release(x)
	}
	for _, x := range names {
		got := receive(t, nodes[0].late, "late answer")
		expect(t, got.request == "hold "+x && got.answer == "released "+x, "the late answer to %q is %q", got.request, got.answer)
		echo(t, got.from, "to the sender of the late answer")
	}
	echo(t, p, "after all earlier answers")
	if len(nodes[0].late) > 0 {
		t.Errorf("HandleLate was called again, for %q", (<-nodes[0].late).request)
	}
	s := nodes[0].Stats()
	expect(t, s.Late == 2, "Late is %d", s.Late)
}

func testLeave(t *testing.T, nodes []*node) {
	gone, name := nodes[2], nodes[2].name()
	requireNoError(t, "Leave", gone.Leave(t.Context()))
	gone.await("it has left", func(v *cluster.View) bool { return v.Self == -1 && len(v.Members) == 2 })
	for _, n := range nodes[:2] {
		n.await(name+" has left", func(v *cluster.View) bool { return isWhole(v, 2) })
		expect(t, n.Forget(name) != nil, "Forget of a member that has left returned no error")
		gone.awaitConnection(n.name())
		echo(t, gone.peer(n), "still")
	}
}

func testDeath(t *testing.T, nodes []*node) {
	name, p := nodes[2].name(), nodes[0].peer(nodes[2])
	requireNoError(t, "Close", nodes[2].Close())
	took := requireError(t.Context(), t, p, "echo x", 50*time.Millisecond, cluster.ErrTimeout, cluster.ErrDisconnected)
	expect(t, took <= long, "asking a closed member took %v", took)
	stands := func(n *node, want ...cluster.State) func(v *cluster.View) bool {
		return func(v *cluster.View) bool {
			i := slices.IndexFunc(v.Members, func(m cluster.Member) bool { return m.Name == name })
			return i >= 0 && !v.Direct[i] && slices.Contains(want, v.Members[i].State)
		}
	}
	for _, n := range nodes[:2] {
		n.await(name+" is not connected", stands(n, cluster.Missing, cluster.Dead))
		requireError(t.Context(), t, n.member(name).Peer, "echo x", long, cluster.ErrDisconnected)
		n.await(name+" is dead", stands(n, cluster.Dead))
		m := n.member(name)
		expect(t, m.Announced == cluster.Serving, "the dead member has announced %v", m.Announced)
	}
	requireNoError(t, "Forget", nodes[0].Forget(name))
	for _, n := range nodes[:2] {
		n.await(name+" is forgotten", func(v *cluster.View) bool { return isWhole(v, 2) })
	}
	expect(t, nodes[0].Forget(name) != nil, "a second Forget returned no error")
}

func testAnnouncedStates(t *testing.T, nodes []*node) {
	n := nodes[0]
	for _, s := range []cluster.State{cluster.Missing, cluster.Dead, cluster.State(99)} {
		expect(t, n.Announce(s) != nil, "Announce(%v) returned no error", s)
	}
	for _, s := range []cluster.State{cluster.Serving, cluster.Leaving, cluster.Leaving, cluster.Joining} {
		n.announce(s)
	}
	requireNoError(t, "Leave", n.Leave(t.Context()))
	expect(t, n.Announce(cluster.Serving) != nil, "Announce after Leave returned no error")
	requireNoError(t, "Close", n.Close())
	err := n.Announce(cluster.Serving)
	expect(t, errors.Is(err, cluster.ErrClosed), "Announce after Close: %v", err)
}

// spread bounds the time until all members know an announcement.
const spread = time.Second

func testAnnouncement(t *testing.T, nodes []*node) {
	name := nodes[0].name()
	for _, s := range []cluster.State{cluster.Leaving, cluster.Joining, cluster.Serving} {
		said := time.Now()
		nodes[0].announce(s)
		for _, n := range nodes[1:] {
			n.await(fmt.Sprint(name, " is ", s), func(v *cluster.View) bool { return n.member(name).State == s })
			took := time.Since(said)
			expect(t, took <= spread, "all members know %v after %v", s, took)
			t.Logf("all members know %v after %v", s, took)
		}
	}
}

func testAnswered(t *testing.T, nodes []*node) {
	n := nodes[0]
	const pings = 3 * time.Second
	begun, before := time.Now(), n.heard.Load()
	calls := func() int64 { return n.heard.Load() - before }
	time.Sleep(pings)
	k, took := calls(), time.Since(begun)
	expect(t, k >= 5 && k <= int64(took/(200*time.Millisecond)), "Answered was called %d times in %v of pings", k, took)
	before = n.heard.Load()
	echo(t, n.peer(nodes[1]), "x")
	for begun = time.Now(); calls() == 0; time.Sleep(time.Millisecond) {
		ensure(t, time.Since(begun) <= 100*time.Millisecond, "an ask was answered and Answered was not called")
	}
	requireNoError(t, "Close", nodes[1].Close())
	name := nodes[1].name()
	n.await(name+" is not connected", func(v *cluster.View) bool { return n.member(name).State != cluster.Serving })
	before = n.heard.Load()
	time.Sleep(2 * time.Second)
	expect(t, calls() == 0, "Answered was called %d times without a member", calls())
}

// testReturnAfterForget requires that a frozen member returns after the other members have forgotten it.
func testReturnAfterForget(t *testing.T, w World) {
	if w.Freeze == nil {
		t.Skip("this world cannot freeze members")
	}
	nodes := startMembers(t, w, 3)
	frozen, name := nodes[2], nodes[2].name()
	thaw := w.Freeze(2)
	for _, n := range nodes[:2] {
		n.await(name+" is dead", func(v *cluster.View) bool { return n.member(name).State == cluster.Dead })
	}
	requireNoError(t, "Forget", nodes[0].Forget(name))
	for _, n := range nodes[:2] {
		n.await(name+" is forgotten", func(v *cluster.View) bool { return n.index(name) < 0 })
	}
	m := frozen.member(name)
	ensure(t, m.State == cluster.Serving && m.Epoch == 0, "the frozen node sees itself as %+v", m)
	frozen.mu.Lock()
	frozen.lives = nil
	frozen.mu.Unlock()
	thaw()
	for _, n := range []*node{frozen, nodes[0], nodes[1]} {
		n.await(name+" is Joining again", func(v *cluster.View) bool {
			i := n.index(name)
			return i >= 0 && v == n.View() && v.Members[i].State == cluster.Joining && v.Members[i].Epoch == 1
		})
	}
	frozen.mu.Lock()
	lives := frozen.lives
	expect(t, len(lives) != 0 && lives[0] == 1, "the epochs at the calls of Answered are %v; the first must be 1", lives)
	frozen.mu.Unlock()
	frozen.announce(cluster.Serving)
	for _, n := range nodes {
		n.await("all serve", func(v *cluster.View) bool { return isWhole(v, 3) })
	}
}

func testClose(t *testing.T, nodes []*node) {
	testCloseDuring(t, nodes[0], nodes[0].peer(nodes[1]), nodes[1])
	expect(t, nodes[0].View() != nil, "View is nil after Close")
}

// testCloseDuring closes n while a request of n, sent by p, waits for an answer of the node other.
func testCloseDuring(t *testing.T, n *node, p cluster.Peer, other *node) {
	wait := postponeRequest(t.Context(), t, p, other, cluster.ErrClosed)
	requireNoError(t, "Close", n.Close())
	wait()
	requireError(t.Context(), t, p, "who", long, cluster.ErrClosed)
	p.Send([]byte("tell x"))
}
