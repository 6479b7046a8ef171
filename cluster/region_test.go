package cluster

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/detect"
	"github.com/weir-go/weir/internal/lab"
)

// reach makes p connect to region "far" at the given addresses, and returns the region.
func reach(p *testPeer, n Network, entries ...string) *region {
	r := newRegion(p.ctx, "far", entries)
	p.reach(r, n)
	return r
}

func abroad(c *peersConfig) { c.Self.Region = "far" }

// awaitAnswer waits until a node of the region answers.
func awaitAnswer(t *testing.T, r *region, within time.Duration) {
	t.Helper()
	eventually(t, within, func() bool { return askX(r, time.Second) == nil }, "no node of the region answers")
}

// lines is a log that tests read.
type lines struct{ lab.Text }

func (l *lines) countLines(all ...string) (count int) { return len(l.Lines(all...)) }

// setLog sets the log of peers to l.
func (l *lines) setLog(c *peersConfig) {
	c.Log = slog.New(slog.NewTextHandler(l, nil))
}

func TestOtherRegionSendsOnlyRequestsAndPings(t *testing.T) {
	t.Parallel()
	told := make(chan string, 1)
	start := func(t *testing.T, lo *loopback) *testPeer {
		p := lo.peer(t, "b", &testHandler{serve: func(b *Batch) {
			if string(b.Requests[0]) == "tell" {
				told <- b.From + " of " + b.Region
			}
			b.Reply(0, []byte("answer"))
		}}, func(c *peersConfig) {
			c.HandleRecord = func(string, []byte) []byte { panic("a record of a node of another region was handled") }
		})
		connectAll(t, p, lo.peer(t, "a", nil)) // so that the connectivity table has a row
		return p
	}
	connect := func(t *testing.T, p *testPeer) net.Conn {
		conn := dialRaw(t, p)
		_, _, err := identity{self: hello{Name: "stranger", Region: "far"}.withVersions(ownVersions)}.dial(conn, "r")
		require.NoError(t, err)
		return conn
	}
	for name, c := range map[string]struct {
		send   []byte
		gets   []byte
		closed bool
	}{
		"a ping":             {appendFrame(nil, kindPing, 7, nil), appendFrame(nil, kindPong, 7, nil), false},
		"a ping of a member": {appendFrame(nil, kindPing, 7, make([]byte, 8)), appendFrame(nil, kindPong, 7, nil), false},
		"an ask":             {appendFrame(nil, kindAsk, 7, nil), appendFrame(nil, kindAnswer, 7, []byte("answer")), false},
		"a record":           {appendFrame(nil, kindNews, 0, []byte("x")), nil, true},
		"an answer":          {appendFrame(nil, kindAnswer, 7, nil), nil, true},
		"a pong":             {appendFrame(nil, kindPong, 7, make([]byte, 8)), nil, true},
		"rows":               {appendFrame(nil, kindRows, 0, detect.AppendRows(nil, []detect.Row{{About: 1, Number: 1}})), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, lo *loopback) {
				conn := connect(t, start(t, lo))
				conn.Write(c.send)
				if c.closed {
					requireClosed(t, conn, time.Second)
					return
				}
				got := make([]byte, len(c.gets))
				conn.SetReadDeadline(time.Now().Add(time.Second))
				_, err := io.ReadFull(conn, got)
				require.NoError(t, err)
				require.Equal(t, c.gets, got)
			})
		})
	}
	inMemory(t, func(t *testing.T, lo *loopback) {
		p := start(t, lo)
		connect(t, p).Write(appendFrame(nil, kindTell, 0, []byte("tell")))
		synctest.Wait()
		require.Equal(t, "stranger of far", <-told)
		direct := p.connections([]string{"a", "b", "stranger"}).Direct
		require.Equal(t, []bool{true, true, false}, direct)
		require.Nil(t, p.peer("stranger"))
	})
}

// A node that has left closes the connections of other regions, and refuses new ones, so that these
// regions use a different node. Members of the region can still send requests to the node.
func TestOtherRegionsDoNotAskLeaver(t *testing.T) {
	t.Parallel()
	inMemory(t, func(t *testing.T, lo *loopback) {
		p := lo.peer(t, "b", nil)
		from := identity{self: hello{Name: "stranger", Region: "far"}.withVersions(ownVersions)}
		conn := dialRaw(t, p)
		_, _, err := from.dial(conn, "r")
		require.NoError(t, err)
		conn.Write(appendFrame(nil, kindPing, 7, nil))
		_, err = io.ReadFull(conn, make([]byte, headerSize))
		require.NoError(t, err)
		member := dialStranger(t, p)

		p.leave()
		requireClosed(t, conn, time.Second)
		_, _, err = from.dial(dialRaw(t, p), "r")
		require.ErrorIs(t, err, errAway)
		serves, _ := p.registerCaller(conn, hello{Name: "stranger", Region: "far", To: "r"})
		require.False(t, serves, "a node whose handshake ended just before p left")
		member.Write(appendFrame(nil, kindAsk, 7, []byte("x")))
		_, err = io.ReadFull(member, make([]byte, headerSize+1))
		require.NoError(t, err)
	})
}

func TestWrongRegionIsLoggedOnBothSides(t *testing.T) {
	t.Parallel()
	inMemory(t, func(t *testing.T, lo *loopback) {
		var here, there lines
		wrong := lo.peer(t, "b", nil, there.setLog, func(c *peersConfig) { c.Self.Region = "elsewhere" })
		a := lo.peer(t, "a", nil, here.setLog)
		r := reach(a, nil, wrong.cfg.Self.Addr)
		eventually(t, 5*time.Second, func() bool { return wrong.stats().Refused[reasonRegion] >= 3 }, "it was not refused again and again")
		_, err := r.Ask(t.Context(), nil, nil, time.Second)
		require.ErrorIs(t, err, ErrDisconnected)
		named := []string{`\"r\"`, `\"far\"`, `\"elsewhere\"`}
		require.Equal(t, 1, here.countLines(append(named, "cannot reach another region", "region=far", wrong.cfg.Self.Addr)...), here.String())
		require.Equal(t, 1, there.countLines(append(named, "refused a peer", "reason=region")...), there.String())
	})
}

func TestRegionNodeThatStopsReadingIsReplaced(t *testing.T) {
	t.Parallel()
	inMemory(t, func(t *testing.T, lo *loopback) {
		hung, well := lo.hungPeer(t, "b", abroad), lo.peer(t, "c", nil, abroad)
		a := lo.peer(t, "a", nil)
		signs := &signposts{at: map[string][]string{"far.test": {"192.0.2.1"}}, lo: lo}
		signs.dial = func(addr string) string {
			return map[string]string{"192.0.2.1:1": hung.cfg.Self.Addr, "192.0.2.2:1": well.cfg.Self.Addr}[addr]
		}
		a.cfg.Dial = signs.Dial
		r := reach(a, signs, "far.test:1", "nobody.test:1")
		eventually(t, 3*time.Second, func() bool { return r.session.Load() != nil }, "no connection")
		signs.set("far.test", "192.0.2.1", "192.0.2.2")
		big := make([]byte, MaxMessage)
		const wait = 20 * time.Millisecond
		for {
			begun := time.Now()
			_, err := r.Ask(t.Context(), big, nil, wait)
			require.LessOrEqual(t, time.Since(begun), wait)
			if errors.Is(err, ErrBusy) {
				break
			}
			require.ErrorIs(t, err, ErrTimeout)
			for range 100 { // more than the queue holds
				r.Send(big)
			}
			synctest.Wait() // the writer has written all frames that fit, and waits
		}
		dropped := a.stats().Dropped
		require.NotZero(t, dropped)
		r.Send(big)
		require.Equal(t, dropped+1, a.stats().Dropped)
		awaitAnswer(t, r, patienceAbroad+2*pingAbroad)
		require.Zero(t, a.stats().Late)
	})
}

// signposts is a network of names. dial translates its addresses.
type signposts struct {
	mu   sync.Mutex
	at   map[string][]string
	dial func(addr string) string // returns the address in lo; empty if no node answers
	lo   *loopback                // has the nodes
}

func (n *signposts) set(name string, addrs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at[name] = addrs
}

func (n *signposts) LookupHost(_ context.Context, host string) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.at[host] == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return n.at[host], nil
}

func (n *signposts) Dial(ctx context.Context, addr string) (net.Conn, error) {
	to := n.dial(addr)
	if to == "" {
		return nil, errors.New("nobody there")
	}
	return n.lo.dial(ctx, to)
}

func (n *signposts) Listen(context.Context, string) (net.Listener, net.PacketConn, error) {
	return nil, nil, errors.ErrUnsupported
}

func TestAttemptsToReachRegionBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		dials := map[string]int{}
		var at []time.Time
		signs := &signposts{at: map[string][]string{"far.test": {"192.0.2.1", "192.0.2.2"}, "other.test": {"192.0.2.3", "192.0.2.1"}}}
		signs.dial = func(addr string) string {
			mu.Lock()
			defer mu.Unlock()
			dials[addr]++
			at = append(at, time.Now())
			if n := len(at) % 3; n == 0 {
				require.Len(t, dials, 3)
				for addr, count := range dials {
					require.Equal(t, len(at)/3, count, "%s after %d attempts", addr, len(at))
				}
			}
			return ""
		}
		p := newPeers(peersConfig{Self: hello{Name: "a", Addr: "a", Region: "r"}, Dial: signs.Dial}, &testHandler{})
		defer p.close()
		start := time.Now()
		p.reach(newRegion(p.ctx, "far", []string{"far.test:1", "nobody.test:1", "other.test:1"}), signs)
		time.Sleep(5 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, start, at[0], "at once")
		for i := range at[1:] {
			pause, most := at[i+1].Sub(at[i]), min(firstPauseAbroad<<min(i, 16), lastPauseAbroad)
			require.GreaterOrEqual(t, pause, most/2, "pause %d", i)
			require.LessOrEqual(t, pause, most, "pause %d", i)
		}
		require.Greater(t, len(at), 30)
	})
}

func TestRegionNodesAreChosenAtRandom(t *testing.T) {
	t.Parallel()
	inMemory(t, func(t *testing.T, lo *loopback) {
		var nodes []*testPeer
		for i := range 3 {
			nodes = append(nodes, lo.peer(t, "b"+string(rune('0'+i)), nil, abroad))
		}
		chosen := map[string]bool{}
		for range 40 {
			if len(chosen) == len(nodes) {
				break
			}
			a := lo.peer(t, "a", nil)
			r := reach(a, nil, nodes[0].cfg.Self.Addr, nodes[1].cfg.Self.Addr, nodes[2].cfg.Self.Addr)
			awaitAnswer(t, r, 3*time.Second)
			chosen[r.session.Load().conn.RemoteAddr().String()] = true
			a.stop()
		}
		require.Len(t, chosen, 3)
	})
}
