package ports

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/lab"
)

var quiet = slog.New(slog.DiscardHandler)

// dial connects from an address, and sends a text.
func dial(t *testing.T, l *lab.PipeListener, from, first string) net.Conn {
	t.Helper()
	here := l.Dial(func(there net.Conn) net.Conn { return lab.FromIP(there, from) })
	t.Cleanup(func() { here.Close() })
	go io.WriteString(here, first)
	synctest.Wait()
	return here
}

// opened returns the number of connections of a port.
func opened(p *Port) int {
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	return len(p.fresh) + len(p.kept)
}

// keeps returns the number of proven connections of a port.
func keeps(p *Port) int {
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	return len(p.kept)
}

func TestBudgetLeavesHalfToPeersAndFiles(t *testing.T) {
	for _, c := range []struct {
		files                      uint64
		clients, new, probes, news int
	}{
		{0, minClients, 2, minProbes, 2},
		{64, 24, 4, 8, 4},
		{256, 96, 16, 32, 16},
		{1024, 384, 64, 128, 64},
		{65536, 24576, maxNew, maxProbes, 128},
		{1 << 63, maxClients, maxNew, maxProbes, 128},
	} {
		b := NewBudget(c.files, quiet)
		client, probe := b.Clients(nil, "client"), b.Probes(nil, "probe")
		require.Equal(t, []int{c.clients, c.new, c.probes, c.news}, []int{b.clients.most, client.mostNew, b.probes.most, probe.mostNew}, c.files)
		if c.files >= 64 {
			require.LessOrEqual(t, uint64(b.clients.most+b.probes.most), c.files/2)
		}
	}
}

func TestLongestStalledConnectionMakesRoom(t *testing.T) {
	const s = int64(time.Second)
	now := 100 * s
	type c struct {
		name, from    string
		since         int64 // start of the stall
		proven, works bool
		reads         bool  // the handler waits for the body of a request
		writing       int64 // start of the write of a response that the client does not read; 0 if there is none
	}
	for _, row := range []struct {
		what  string
		conns []c
		goes  string // empty if the next connection has to wait
	}{
		{"the longest", []c{{name: "later", since: 50 * s}, {name: "first", since: 40 * s}}, "first"},
		{"of the origin with most", []c{{name: "honest", from: "10.0.0.1", since: 1 * s}, {name: "flood", since: 98 * s}, {name: "more", since: 99 * s}}, "flood"},
		{"of an IPv6 network with most", []c{{name: "honest", from: "2001:db8:1::1", since: 1 * s}, {name: "flood", from: "2001:db8:2::1", since: 2 * s}, {name: "more", from: "2001:db8:2::2", since: 3 * s}}, "flood"},
		{"new or of use", []c{{name: "idle", since: 1 * s, proven: true}, {name: "new", since: 99 * s}}, "idle"},
		{"not one that just came", []c{{name: "idle", since: now - int64(stall), proven: true}, {name: "came", since: now - int64(stall) + 1}}, "idle"},
		{"not an honest one while a flood comes", []c{{name: "honest", from: "10.0.0.1", since: now - int64(stall)}, {name: "flood", since: now}, {name: "more", since: now}}, ""},
		{"a very idle one beside busy ones", []c{{name: "idle", from: "10.0.0.1", since: 99 * s, proven: true}, {name: "busy", since: now, proven: true}, {name: "too", since: now, proven: true}}, "idle"},
		{"not one that works, however new", []c{{name: "works", since: 1 * s, works: true}, {name: "stalls", since: 99 * s}}, "stalls"},
		{"half a body", []c{{name: "half", since: 90 * s, works: true, reads: true}, {name: "works", works: true}}, "half"},
		{"half a body of one of use", []c{{name: "half", since: 90 * s, proven: true, works: true, reads: true}, {name: "works", works: true}}, "half"},
		{"an unread answer", []c{{name: "unread", works: true, proven: true, writing: 90 * s}, {name: "works", works: true}}, "unread"},
		{"not an answer on its way", []c{{name: "answered", works: true, proven: true, writing: now - int64(writeGrace) + 1}}, ""},
		{"not one between two requests", []c{{name: "busy", since: now - int64(stall) + 1, proven: true}}, ""},
		{"none of those that work", []c{{name: "works", works: true}, {name: "too", works: true, proven: true}}, ""},
	} {
		b := NewBudget(256, quiet)
		p := b.Clients(lab.ListenPipe(), "test")
		named := make(map[*conn]string)
		for _, of := range row.conns {
			if of.from == "" {
				of.from = "192.0.2.1"
			}
			c := &conn{Conn: lab.FromIP(nil, of.from), port: p, at: -1}
			c.since.Store(of.since)
			if of.reads {
				c.reads.Store(1)
			}
			c.writing.Store(of.writing)
			if of.works {
				c.calls.Store(1)
			}
			_, in := p.pool.enter(c, now)
			require.True(t, in)
			if of.proven {
				p.pool.prove(c, now)
			}
			named[c] = of.name
		}
		p.pool.most = len(row.conns)
		next := &conn{Conn: lab.FromIP(nil, "10.0.0.2"), port: p, at: -1}
		next.since.Store(now)
		out, in := p.pool.enter(next, now)
		if row.goes == "" {
			require.Empty(t, out, row.what)
			require.False(t, in, row.what)
			continue
		}
		require.True(t, in, row.what)
		require.Len(t, out, 1, row.what)
		require.Equal(t, row.goes, named[out[0]], row.what)
		require.Equal(t, p.pool.most, opened(p), row.what)
	}
}

// A flood of new connections at one port closes no connection of other ports, and no
// proven connection. Each flooding connection has time to send a request, regardless of
// its address.
func TestFloodOfOnePortSparesOtherPorts(t *testing.T) {
	for _, same := range []bool{true, false} {
		for _, every := range []time.Duration{2 * time.Millisecond, 100 * time.Microsecond, time.Microsecond} {
			b := NewBudget(256, quiet)
			flooded, other := b.Clients(lab.ListenPipe(), "flooded"), b.Clients(lab.ListenPipe(), "other")
			now := int64(time.Hour)
			enter := func(p *Port, from string) *conn {
				c := &conn{Conn: lab.FromIP(nil, from), port: p, at: -1}
				c.since.Store(now)
				for {
					out, in := p.pool.enter(c, now)
					for _, o := range out {
						require.GreaterOrEqual(t, now-o.since.Load(), int64(stall))
					}
					if in {
						return c
					}
					now += int64(time.Millisecond)
				}
			}
			var stay []*conn
			for range other.mostNew {
				of := enter(flooded, "192.0.2.1")
				b.clients.prove(of, now)
				stay = append(stay, of, enter(other, "192.0.2.1"))
			}
			for i := range 5000 {
				from := "192.0.2.1" // behind a NAT
				if !same {
					from = fmt.Sprintf("10.0.%d.%d", i>>8, i&0xff)
				}
				now += int64(every)
				enter(flooded, from)
			}
			for _, c := range stay {
				require.GreaterOrEqual(t, c.at, 0)
			}
			require.LessOrEqual(t, b.clients.open, b.clients.most)
			require.LessOrEqual(t, len(b.clients.origins), b.clients.most)
			now += int64(stall)
			enter(flooded, "192.0.2.2")
			require.LessOrEqual(t, len(flooded.fresh), flooded.mostNew)
		}
	}
}

func TestKeptConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(1<<30, quiet)
		p := b.Clients(lab.ListenPipe(), "test")
		for i := range maxKept + 10 {
			if i == maxKept {
				time.Sleep(stall) // after this time, the first connections count as stalled
			}
			here, there := net.Pipe()
			defer here.Close()
			c := &conn{Conn: lab.FromIP(there, "192.0.2.1"), port: p, at: -1}
			c.since.Store(b.age())
			_, in := p.pool.enter(c, b.age())
			require.True(t, in)
			c.prove()
		}
		require.Len(t, p.kept, maxKept)
	})
}

// outOfFiles fails like the listener of a process without file descriptors.
type outOfFiles struct{ net.Listener }

func (outOfFiles) Accept() (net.Conn, error) {
	return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
}

func TestStalledConnectionMakesRoomWithoutFileDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(256, quiet)
		p := b.Clients(outOfFiles{}, "test")
		here, there := net.Pipe()
		c := &conn{Conn: lab.FromIP(there, "192.0.2.1"), port: p, at: -1}
		_, in := p.pool.enter(c, b.age())
		require.True(t, in)
		time.Sleep(stall)
		_, err := p.Accept()
		require.ErrorIs(t, err, syscall.EMFILE)
		_, err = here.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.Zero(t, opened(p))
	})
}
