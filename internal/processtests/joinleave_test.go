package processtests

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/internal/testnode"
)

// A new member may receive the first frame before it uses the view with both members.
func TestSingleNodeUnitsCountOnceAfterJoin(t *testing.T) {
	t.Parallel()
	for run := range testenv.PickFull(t, 3, 40) {
		t.Run(fmt.Sprint(run), func(t *testing.T) {
			t.Parallel()
			limit := weir.Limit{Name: "test", Algorithm: weir.FixedWindow, Rate: 10, Per: time.Hour}
			start := func(join ...string) (*weir.Node, *weir.Limiter) {
				n := testnode.Start(t, weir.Config{Bind: "127.0.0.1:0", Join: join, Timeout: 10 * time.Second})
				return n, testnode.Limiter(t, n, limit)
			}
			first, leaver := start()
			d, err := leaver.Allow(t.Context(), "key")
			require.NoError(t, err)
			require.EqualValues(t, 9, d.Remaining)
			second, l := start(first.Members()[0].Addr)
			lab.Eventually(t, "both are members and ready", func() bool {
				return len(first.Members()) == 2 && len(second.Members()) == 2 && first.Ready() && second.Ready()
			})
			_, err = l.Allow(t.Context(), "key")
			require.NoError(t, err)
			require.NoError(t, first.Leave(t.Context()))
			d, err = l.Allow(t.Context(), "key")
			require.NoError(t, err)
			require.EqualValues(t, 7, d.Remaining)
			lab.Eventually(t, "a node that has left asks the owner", func() bool {
				d, err := leaver.Peek(t.Context(), "key")
				return err == nil && d.Source == weir.Forwarded && d.Remaining == 7
			})
		})
	}
}
