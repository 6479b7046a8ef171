package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/weirtest"
)

var costsOf = flag.String("costs", "3", "of clusters of how many nodes TestWhatNodesCostEachOther tells the costs, separated by commas")

// sent counts what a node writes: what TCP, UDP and IP add to it is not in it.
type sent struct{ bytes, writes, dials atomic.Int64 }

// metered is a network that counts what is written to it.
type metered struct {
	cluster.Network
	*sent
}

func (m metered) Listen(ctx context.Context, addr string) (net.Listener, net.PacketConn, error) {
	l, p, err := m.Network.Listen(ctx, addr)
	if err != nil {
		return nil, nil, err
	}
	return meteredListener{l, m.sent}, meteredPackets{p, m.sent}, nil
}

func (m metered) Dial(ctx context.Context, addr string) (net.Conn, error) {
	m.dials.Add(1)
	c, err := m.Network.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return meteredConn{c, m.sent}, nil
}

type meteredListener struct {
	net.Listener
	*sent
}

func (l meteredListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return meteredConn{c, l.sent}, nil
}

type meteredConn struct {
	net.Conn
	*sent
}

func (c meteredConn) Write(p []byte) (int, error) {
	c.bytes.Add(int64(len(p)))
	c.writes.Add(1)
	return c.Conn.Write(p)
}

type meteredPackets struct {
	net.PacketConn
	*sent
}

func (c meteredPackets) WriteTo(p []byte, addr net.Addr) (int, error) {
	c.bytes.Add(int64(len(p)))
	c.writes.Add(1)
	return c.PacketConn.WriteTo(p, addr)
}

// fleet is nodes of the real protocols, gossip and all, on a network in memory.
type fleet struct {
	t       *testing.T
	network *weirtest.Network
	secret  []byte
	joins   []string
	nodes   map[string]*weir.Node // by host
	names   map[string]string     // of members, by host
	meters  map[string]*sent
	starts  int
}

func newFleet(t *testing.T, size int) *fleet {
	f := &fleet{t: t, network: weirtest.NewNetwork(1, weirtest.Link{Latency: 200 * time.Microsecond}), secret: make([]byte, 32),
		nodes: make(map[string]*weir.Node), names: make(map[string]string), meters: make(map[string]*sent)}
	rand.Read(f.secret)
	for i := range 3 {
		f.joins = append(f.joins, hostOf(i)+":7946")
	}
	for i := range size {
		f.network.Host(hostOf(i))
	}
	for i := range size {
		f.start(hostOf(i))
	}
	return f
}

func hostOf(i int) string { return "node" + strconv.Itoa(i) }

func (f *fleet) start(name string) {
	f.starts++
	f.meters[name] = new(sent)
	f.names[name] = fmt.Sprintf("%s-%016x", name, f.starts)
	quiet := slog.New(slog.DiscardHandler)
	c := cluster.NewGossip(cluster.Config{
		Name: f.names[name], Bind: name + ":7946", Join: f.joins, Secrets: [][]byte{f.secret}, Logger: quiet, Forget: 5 * time.Minute,
		Network: metered{f.network.Host(name).Network(), f.meters[name]},
	})
	node, err := weir.Start(f.t.Context(), weir.Config{Cluster: c, Logger: quiet, MaxKeys: 10_000})
	require.NoError(f.t, err)
	f.nodes[name] = node
}

func (f *fleet) close() {
	for _, node := range f.nodes {
		_ = node.Close()
	}
	time.Sleep(time.Minute) // Close does not wait for memberlist's last probes
}

// until is how long it takes until it is so.
func (f *fleet) until(what string, most time.Duration, is func() bool) time.Duration {
	begun := time.Now()
	for !is() {
		require.Less(f.t, time.Since(begun), most, what)
		time.Sleep(20 * time.Millisecond)
	}
	return time.Since(begun)
}

// settled reports whether all nodes that run are Ready, and see each other and nobody else.
func (f *fleet) settled() bool {
	for _, node := range f.nodes {
		if !node.Ready() {
			return false
		}
		members := node.Members()
		if len(members) != len(f.nodes) {
			return false
		}
		for _, m := range members {
			if m.State != weir.Serving {
				return false
			}
		}
	}
	return true
}

// allSee reports whether all nodes that run say of a member that it is one of these states.
func (f *fleet) allSee(member string, states ...weir.MemberState) bool {
	for _, node := range f.nodes {
		seen := false
		for _, m := range node.Members() {
			for _, s := range states {
				seen = seen || m.Name == member && m.State == s
			}
		}
		if !seen {
			return false
		}
	}
	return true
}

// What it costs nodes that they are there, while nothing is asked, and how long it takes
// them to agree. With -costs 3,10,30,100 it makes the table of docs/deploy.md, in some
// minutes.
func TestWhatNodesCostEachOther(t *testing.T) {
	t.Log("| nodes | bytes a second | messages a second | a join | a crash is noticed | is dead for all | a restart of each in turn |")
	for text := range strings.SplitSeq(*costsOf, ",") {
		size, err := strconv.Atoi(text)
		require.NoError(t, err)
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, size)
			defer f.close()
			f.until("all meet", 2*time.Minute, f.settled)

			const idle = time.Minute
			time.Sleep(10 * time.Second)
			var bytes, writes int64
			for _, m := range f.meters {
				bytes, writes = bytes-m.bytes.Load(), writes-m.writes.Load()
			}
			time.Sleep(idle)
			for _, m := range f.meters {
				bytes, writes = bytes+m.bytes.Load(), writes+m.writes.Load()
			}
			perNode := func(n int64) float64 { return float64(n) / idle.Seconds() / float64(size) }
			require.Positive(t, bytes)

			f.network.Host(hostOf(size))
			joining := time.Now()
			f.start(hostOf(size))
			f.until("one joins", time.Minute, f.settled)
			joined := time.Since(joining)

			const restarts = 3
			begun := time.Now()
			for i := range restarts {
				leaving, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				require.NoError(t, f.nodes[hostOf(i)].Leave(leaving))
				cancel()
				require.NoError(t, f.nodes[hostOf(i)].Close())
				f.start(hostOf(i))
				f.until("one restarts", time.Minute, f.settled)
			}
			restart := time.Since(begun) / restarts

			last := hostOf(size)
			killed := f.nodes[last]
			delete(f.nodes, last)
			f.network.Host(last).Kill()
			defer killed.Close() // its goroutines go on where its machine does not
			crashed := time.Now()
			f.until("a crash is noticed", time.Minute, func() bool { return f.allSee(f.names[last], weir.Unheard, weir.Dead) })
			noticed := time.Since(crashed)
			f.until("it is dead", 2*time.Minute, func() bool { return f.allSee(f.names[last], weir.Dead) })
			t.Logf("| %d | %.0f | %.0f | %.1f s | %.1f s | %.1f s | %.1f s |", size, perNode(bytes), perNode(writes),
				joined.Seconds(), noticed.Seconds(), time.Since(crashed).Seconds(), restart.Seconds())
		})
	}
}
