package clustertests

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/weirtest"
)

// A key may be the name or the address of a user. The nodes send only the ID of a key, even if
// the network is not encrypted, and they do not log the key.
func TestNoKeyIsSentOrLogged(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const secretive = "203.0.113.77 of somebody"
		network := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond})
		var said lab.Text
		nodes := make(map[string]*weir.Node)
		addHosts(network, hosts(3)...)
		network.SetName("weir.internal", hosts(3)...)
		log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug}))
		for _, name := range hosts(3) {
			host := network.Host(name)
			c := cluster.Config{Name: name + "-1", Join: []string{"weir.internal"}, Network: testnode.TappedNetwork{Network: host.Network(), Sent: func(b []byte) { said.Write(b) }}, Logger: log}
			var err error
			nodes[name], err = startOn(t.Context(), t, host, true, c, weir.Config{Logger: log})
			require.NoError(t, err)
		}
		whole := func() bool { return sees(nodes["a"], 3) && sees(nodes["b"], 3) && sees(nodes["c"], 3) }
		require.True(t, waitFor(time.Minute, whole))
		for round := range 3 {
			for k, algorithm := range algorithms {
				for name, n := range nodes {
					if round == 2 && name == "c" {
						continue // node c is dead
					}
					l, err := n.Limiter(weir.Limit{Name: "a limit's name", Algorithm: algorithm, Rate: int64(10 + round), Per: time.Hour, Version: uint64(5*round + k)})
					require.NoError(t, err)
					for i := range 10 {
						key := fmt.Sprint(secretive, i)
						l.AllowN(t.Context(), key, 3)
						l.Debit(t.Context(), key, 2)
						l.Peek(t.Context(), key)
						l.Refund(t.Context(), key, 1)
						n.AllowAll(t.Context(), weir.Ask{Limiter: l, Key: key}, weir.Ask{Limiter: l, Key: key + "'", Shadow: true})
						if i%3 == 0 {
							l.Reset(t.Context(), key)
						}
					}
				}
			}
			time.Sleep(time.Second)
			if round == 1 {
				network.Host("c").Kill()
			}
		}
		require.True(t, strings.Contains(said.String(), "a limit's name"), "sent data is recorded")
		require.True(t, strings.Contains(said.String(), "level=WARN"), "log lines are recorded")
		require.False(t, strings.Contains(said.String(), "somebody"))
	})
}
