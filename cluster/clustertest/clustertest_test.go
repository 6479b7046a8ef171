package clustertest_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/cluster/clustertest"
)

// TestMain lets tests on real sockets wait side by side: they do little else.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "8")
	os.Exit(m.Run())
}

func TestSolo(t *testing.T) {
	clustertest.Run(t, func(t *testing.T, test func(*testing.T, clustertest.World)) {
		test(t, clustertest.World{Size: 1, New: func(int) cluster.Cluster { return cluster.NewSolo("alone", "r") }})
	})
}

func TestGossipOnLoopback(t *testing.T) {
	clustertest.Run(t, func(t *testing.T, test func(*testing.T, clustertest.World)) {
		t.Parallel()
		var first cluster.Cluster
		var signs signposts
		test(t, clustertest.World{
			Size:   3,
			Stands: 10 * time.Second,
			New: func(i int) cluster.Cluster {
				c := cluster.Config{
					Name: fmt.Sprintf("node%d-1", i), Bind: "127.0.0.1:0", Region: "r",
					Regions: map[string][]string{"far": {"far.test:7946"}}, Network: &signs,
					Logger: slog.New(slog.DiscardHandler),
				}
				if i > 0 {
					c.Join = []string{first.View().Members[0].Addr}
				}
				made := cluster.NewGossip(c)
				if i == 0 {
					first = made
				}
				return made
			},
			Abroad: func(i int, c cluster.Config) cluster.Cluster {
				c.Name, c.Bind, c.Logger = fmt.Sprintf("far%d-1", i), "127.0.0.1:0", slog.New(slog.DiscardHandler)
				made := cluster.NewGossip(c)
				signs.nodes = append(signs.nodes, made)
				return made
			},
			Resolve: signs.resolve,
		})
	})
}

// signposts is the machine's loopback, and a name for nodes on it, whatever
// their ports are.
type signposts struct {
	nodes []cluster.Cluster
	mu    sync.Mutex
	at    map[string]string // what is dialled for what is looked up
}

func (s *signposts) resolve(nodes ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = make(map[string]string)
	for _, i := range nodes {
		v := s.nodes[i].View()
		s.at[fmt.Sprintf("192.0.2.%d", i)] = v.Members[v.Self].Addr
	}
}

func (s *signposts) LookupHost(_ context.Context, host string) ([]string, error) {
	if host != "far.test" {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.at)), nil
}

func (s *signposts) Dial(ctx context.Context, addr string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(addr)
	s.mu.Lock()
	if at := s.at[host]; at != "" {
		addr = at
	}
	s.mu.Unlock()
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

func (s *signposts) Listen(_ context.Context, addr string) (net.Listener, net.PacketConn, error) {
	for tries := 0; ; tries++ {
		tcp, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, nil, err
		}
		udp, err := net.ListenPacket("udp", tcp.Addr().String())
		if err == nil || tries == 20 {
			return tcp, udp, err
		}
		_ = tcp.Close() // others have the port
	}
}
