package rules

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

func TestAnOverrideSpreadsAndOutlivesRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, err := weirtest.NewCluster(t.Context(), weirtest.Options{Config: weir.Config{Logger: slog.New(slog.DiscardHandler)}})
		require.NoError(t, err)
		defer cluster.Close()
		set := mustParse(t, overridable)
		type member struct {
			name string
			node *weir.Node
			book *Book
		}
		start := func(name string) member {
			node := cluster.Node(name)
			if node == nil {
				var err error
				node, err = cluster.Start(t.Context(), name)
				require.NoError(t, err)
			}
			return member{name, node, staticBook(t, node, overridable)}
		}
		kill := func(m member) { cluster.Kill(m.name) }
		holds := func(rate int64, members ...member) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			for _, m := range members {
				require.EqualValues(t, rate, rateOf(m.book), m.name)
			}
		}
		a, b, c := start("a"), start("b"), start("c")
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
