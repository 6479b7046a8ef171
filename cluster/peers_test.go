package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/detect"
)

// testHandler calls its functions that are set. Without serve, it echoes each request.
type testHandler struct {
	serve    func(b *Batch)
	changed  func()
	answered func()
	late     func(from Peer, request, answer []byte)
}

func (h *testHandler) Changed() {
	if h.changed != nil {
		h.changed()
	}
}

func (h *testHandler) Answered() {
	if h.answered != nil {
		h.answered()
	}
}

func (h *testHandler) Serve(b *Batch) {
	if h.serve != nil {
		h.serve(b)
		return
	}
	for i, r := range b.Requests {
		b.Reply(i, r)
	}
}

func (h *testHandler) HandleLate(from Peer, request, answer []byte) {
	if h.late != nil {
		h.late(from, request, answer)
	}
}

// handleEach returns a handler that calls serve for each request of a batch.
func handleEach(serve func(b *Batch, i int, request []byte)) *testHandler {
	return &testHandler{serve: func(b *Batch) {
		for i, request := range b.Requests {
			serve(b, i, request)
		}
	}}
}

// replyAfter returns a handler that echoes each request after a delay.
func replyAfter(d func() time.Duration) *testHandler {
	return handleEach(func(b *Batch, i int, request []byte) {
		later, body := b.Defer(i), slices.Clone(request)
		time.AfterFunc(d(), func() { later(body) })
	})
}

// askX sends a request with the body x.
func askX(p Peer, wait time.Duration) error {
	_, err := p.Ask(context.Background(), []byte("x"), nil, wait)
	return err
}

func withSecret(c *peersConfig) { c.Secrets = secrets("0123456789abcdef") }

// testPeer has peers and the mux of their port on the loopback.
type testPeer struct {
	*peers
	mux     *mux
	changes atomic.Int64
}

func (p *testPeer) member() Member {
	return Member{Name: p.cfg.Self.Name, Addr: p.cfg.Self.Addr, Region: p.cfg.Self.Region}
}

// stop closes port and peers, like a crash.
func (p *testPeer) stop() {
	p.mux.close()
	p.close()
}

func startPeer(t testing.TB, name string, h Handler, change ...func(*peersConfig)) *testPeer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return startPeerOn(t, listener, name, h, change...)
}

func startPeerOn(t testing.TB, listener net.Listener, name string, h Handler, change ...func(*peersConfig)) *testPeer {
	p := new(testPeer)
	cfg := peersConfig{
		Self:    hello{Name: name, Addr: listener.Addr().String(), Region: "r"}.withVersions(ownVersions),
		Dial:    systemNetwork{}.Dial,
		Changed: func() { p.changes.Add(1) },
	}
	for _, c := range change {
		c(&cfg)
	}
	if h == nil {
		h = &testHandler{}
	}
	p.peers = newPeers(cfg, h)
	p.mux = newMux(listener, cfg.TLS, nil, nil, p.cfg.Log, p.pending, p.serve)
	p.mux.refused = p.refusals
	t.Cleanup(p.stop)
	return p
}

// acceptEach calls serve with each accepted connection, until the listener is closed.
func acceptEach(l net.Listener, serve func(net.Conn)) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		serve(conn)
	}
}

// The rows of a large cluster exceed the bound of one frame, and do not fit into a full queue.
func TestAllRowsAreSent(t *testing.T) {
	t.Parallel()
	inMemory(t, func(t *testing.T, lo *loopback) {
		a, b := lo.peer(t, "a", nil), lo.peer(t, "b", nil)
		var rows []detect.Row
		var names []string
		for i := range 200 {
			names = append(names, fmt.Sprintf("m%03d", i))
			r := detect.Row{About: detect.MemberID(names[i]), Number: 1, Connected: []uint64{detect.MemberID(names[0])}}
			for k := range uint64(30) {
				r.Refused = append(r.Refused, k)
			}
			rows = append(rows, r)
		}
		require.Greater(t, len(detect.AppendRows(nil, rows)), detect.MaxRows)
		a.merge("c", rows)
		connectAll(t, a, b)
		time.Sleep(200 * time.Millisecond)
		for _, connected := range b.connections(names).Connected {
			require.Len(t, connected, 1)
		}

		out := a.links["b"].session.Load().out
		out.mu.Lock()
		require.True(t, out.claim()) // no goroutine writes
		out.mu.Unlock()
		for _, size := range []int{MaxMessage, 100} {
			for out.put(kindTell, 0, make([]byte, size)) {
			}
		}
		for i := range rows {
			rows[i].Number, rows[i].Connected = 2, nil
		}
		a.merge("c", rows)
		time.Sleep(200 * time.Millisecond)
		out.flush()
		time.Sleep(200 * time.Millisecond)
		require.Equal(t, make([][]int, len(names)), b.connections(names).Connected)
	})
}

// relay copies the bytes of each of two connections to the other.
func relay(a, b net.Conn) {
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		go func() {
			io.Copy(way[1], way[0])
			way[1].Close()
		}()
	}
}

// connectAll adds all members to each other's rosters, and waits until all are connected to each other.
func connectAll(t testing.TB, all ...*testPeer) {
	t.Helper()
	var members []Member
	for _, p := range all {
		members = append(members, p.member())
	}
	for _, p := range all {
		p.set(members)
	}
	for _, p := range all {
		for _, q := range all {
			if p != q {
				eventually(t, 10*time.Second, func() bool { return p.isConnectedTo(q) }, "%s does not hear %s", p.cfg.Self.Name, q.cfg.Self.Name)
			}
		}
	}
}

func (p *testPeer) isConnectedTo(q *testPeer) bool {
	direct := p.connections([]string{q.cfg.Self.Name}).Direct
	return direct[0]
}

func eventually(t testing.TB, within time.Duration, ok func() bool, message string, args ...any) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			require.FailNowf(t, "not in time", message, args...)
		}
	}
}
