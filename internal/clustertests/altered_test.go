package clustertests

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/weirtest"
)

// alteredNetwork is the network of a node whose connections an attacker alters. The attacker
// changes a denial into a grant if the frame has no other answer.
type alteredNetwork struct {
	cluster.Network
	altered *atomic.Int64
}

func (n alteredNetwork) Dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := n.Network.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return alteredConn{conn, n.altered}, nil
}

type alteredConn struct {
	net.Conn
	altered *atomic.Int64
}

// Read finds the verdict of a single answer, in plain and in sealed frames. The cipher keeps the
// positions of bytes, and the attacker knows the value of a denial.
func (c alteredConn) Read(b []byte) (int, error) {
	const header, answer, verdict, length, tag = 14, 2 + 60, 2, 4, 16
	n, err := c.Conn.Read(b)
	switch n {
	case header + answer:
		if b[header+verdict] != 1 {
			b[header+verdict] = 1
			c.altered.Add(1)
		}
	case length + header + answer + tag:
		b[length+header+verdict] ^= 2 ^ 1 // a firm denial is 2, and a grant is 1
		c.altered.Add(1)
	}
	return n, err
}

// Without sealed connections, the attacker had 20 of 20 checks admitted at a limit of 5.
func TestAnAttackerOnThePathMakesNoYesOfADenial(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		network := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond})
		var altered atomic.Int64
		nodes := map[string]*weir.Node{}
		for _, name := range []string{"a", "b"} {
			c := cluster.Config{Network: network.Host(name).Network(), Join: []string{"b:7946"}, Secrets: [][]byte{older}}
			if name == "a" {
				c.Network = alteredNetwork{c.Network, &altered}
			}
			var err error
			nodes[name], err = startOn(t.Context(), t, network.Host(name), true, c, weir.Config{Replicas: -1})
			require.NoError(t, err)
		}
		whole := func() bool { return sees(nodes["a"], 2) && sees(nodes["b"], 2) }
		require.True(t, within(time.Minute, whole))
		l, err := nodes["a"].Limiter(weir.Limit{Name: "test", Rate: 5, Per: time.Hour, Partition: weir.FailClosed})
		require.NoError(t, err)
		key := ""
		for i := 0; key == ""; i++ {
			if k := fmt.Sprint("key ", i); !l.Owner(k).Self {
				key = k
			}
		}
		admitted := 0
		for range 20 {
			require.True(t, within(time.Minute, whole), "it is connected again")
			d := allowed(t, l, key, 1)
			if d.Allowed {
				admitted++
			}
			time.Sleep(time.Second) // no node caches a denial for that long
		}
		require.LessOrEqual(t, admitted, 5)
		require.NotZero(t, altered.Load(), "the attacker has altered answers")
	})
}
