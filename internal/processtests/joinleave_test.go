package processtests

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/freeport"
	"github.com/weir-go/weir/internal/full"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/realtime"
	"github.com/weir-go/weir/internal/testnode"
)

// A new member may receive the first frame before it uses the view with both members.
func TestWhatWasSpentAloneCountsOnceAfterAJoinAndALeave(t *testing.T) {
	t.Parallel()
	for run := range full.Pick(t, 3, 40) {
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
			realtime.Eventually(t, "both are members and ready", func() bool {
				return len(first.Members()) == 2 && len(second.Members()) == 2 && first.Ready() && second.Ready()
			})
			_, err = l.Allow(t.Context(), "key")
			require.NoError(t, err)
			require.NoError(t, first.Leave(t.Context()))
			d, err = l.Allow(t.Context(), "key")
			require.NoError(t, err)
			require.EqualValues(t, 7, d.Remaining)
			realtime.Eventually(t, "a node that has left asks the owner", func() bool {
				d, err := leaver.Peek(t.Context(), "key")
				return err == nil && d.Source == weir.Forwarded && d.Remaining == 7
			})
		})
	}
}

// TestAJoinThatNobodyAnswersKeepsANodeFromBeingReadyForAWhile shows the same in virtual time.
func TestAWrongAddressShowsOnRealSockets(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it accepts connections and sends nothing
	require.NoError(t, err)
	defer silent.Close()
	join := []string{freeport.Addr(t), silent.Addr().String(), "nobody.invalid:7946"} // the first refuses, the last does not resolve
	const timeout = 8 * time.Second
	log := new(lab.Text)
	begun := time.Now()
	node, err := weir.Start(t.Context(), weir.Config{Bind: "127.0.0.1:0", Join: join, JoinTimeout: timeout, Logger: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	defer node.Close()
	ready := node.Ready()
	require.True(t, !ready || time.Since(begun) >= timeout, "it is not ready before its time")
	require.Eventually(t, node.Ready, time.Minute, 10*time.Millisecond)
	require.GreaterOrEqual(t, time.Since(begun), timeout)
	require.Eventually(t, func() bool { return strings.Count(log.String(), "no other member has answered") == 1 }, time.Minute, 10*time.Millisecond)
	for _, entry := range join {
		require.Contains(t, node.Stats().Cluster.Unanswered, entry)
	}
	require.GreaterOrEqual(t, node.Stats().Unjoined, timeout)
}
