package rules

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/weirtest"
)

func TestAnOverrideSpreadsAndOutlivesRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond})
		set := mustParse(t, overridable)
		type member struct {
			host *weirtest.Host
			node *weir.Node
			book *Book
		}
		start := func(name string) member {
			m := member{host: network.Host(name)}
			var err error
			m.node, err = weir.Start(t.Context(), weir.Config{Cluster: m.host.Cluster(cluster.Config{}), Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			m.book, err = Static(m.node, set)
			require.NoError(t, err)
			return m
		}
		kill := func(m member) {
			m.host.Kill()
			require.NoError(t, m.node.Close())
			require.NoError(t, m.book.Close())
		}
		holds := func(rate int64, members ...member) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			for _, m := range members {
				require.EqualValues(t, rate, rateOf(m.book), m.host.Name())
			}
		}
		a, b, c := start("a"), start("b"), start("c")
		time.Sleep(3 * time.Second)
		require.NoError(t, a.book.Override("r", "k", Override{Rate: 5000, Until: time.Now().Add(time.Hour)}))
		require.EqualValues(t, 5000, rateOf(a.book), "here at once")
		holds(5000, b, c)
		d, err := b.book.Current().Limiter(&set.Rules()[0].Limits[0], "", "k").AllowN(t.Context(), "k", 4000)
		require.NoError(t, err)
		require.True(t, d.Allowed)

		kill(a)
		kill(b)
		a, b = start("a"), start("b")
		time.Sleep(10 * time.Second)
		holds(5000, a, b, c)
		kill(c)
		c = start("c")
		time.Sleep(10 * time.Second)
		holds(5000, a, b, c)

		require.NoError(t, c.book.Override("r", "k", Override{Rate: 6000, Until: time.Now().Add(time.Minute)}))
		holds(6000, a, b, c)
		time.Sleep(time.Minute)
		holds(10, a, b, c)
		for _, m := range []member{a, b, c} {
			values, _ := m.node.Published(overridePrefix)
			require.Empty(t, values)
			kill(m)
		}
	})
}
