package processtests

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/internal/testnode"
)

var quiet = slog.New(slog.DiscardHandler)

// defaultTimeout is the default of Config.Timeout.
const defaultTimeout = 100 * time.Millisecond

var algorithms = []weir.Algorithm{weir.SlidingWindow, weir.SlidingLog, weir.FixedWindow, weir.TokenBucket, weir.LeakyBucket}

type decisions = lab.Decisions[weir.Source]

type node = testnode.Node

// byOwners skips this attempt of lab.WhileHealthy unless each decision came from an owner,
// a lease or a pushback. The nodes of a fleet relay a check only if a member did not answer in time.
func byOwners(t *testing.T, ds ...weir.Decision) {
	t.Helper()
	decided := make(decisions)
	for _, d := range ds {
		decided[d.Source]++
	}
	if decided.Strayed() || decided[weir.Relayed] > 0 {
		t.Skipf("a member did not answer in time: decided by %v", decided)
	}
}

// startAt starts a node at a fixed port, and tries again while the port is in use. A child process
// of another test has copies of the sockets of this process until it executes its program.
func startAt(t testing.TB, cfg weir.Config) *node {
	t.Helper()
	var n *node
	var err error
	lab.Eventually(t, "the port is free again", func() bool {
		n, err = testnode.Open(t.Context(), cfg)
		return !errors.Is(err, syscall.EADDRINUSE)
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

func allow(t *testing.T, l *weir.Limiter, key string, units int64) weir.Decision {
	t.Helper()
	d, err := l.AllowN(t.Context(), key, units)
	require.NoError(t, err)
	require.True(t, d.Allowed, "%+v", d)
	return d
}

func TestAnyMixOfNodesAdmitsExactlyTheLimit(t *testing.T) {
	t.Parallel()
	nodes := testnode.Fleet(t, 3, nil)
	for _, algorithm := range algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			ls := testnode.Limiters(t, nodes, weir.Limit{Name: algorithm.String(), Algorithm: algorithm, Rate: 100, Per: time.Hour})
			for run := range testenv.PickFull(t, 5, 20) {
				attempt := 0
				lab.WhileHealthy(t, func(t *testing.T) decisions {
					attempt++
					return admitsTheLimit(t, ls, fmt.Sprint("run ", run, ", attempt ", attempt), 64, 10_000)
				})
			}
		})
	}
}

// admitsTheLimit checks a key of a limit of 100 from many goroutines. asks is the number of
// checks of all goroutines together. Each goroutine uses one of the limiters.
func admitsTheLimit(t *testing.T, ls []*weir.Limiter, key string, callers, asks int) decisions {
	var (
		mu       sync.Mutex
		admitted int
		decided  = make(decisions)
		wait     sync.WaitGroup
	)
	for g := range callers {
		wait.Go(func() {
			own, allowed := make(decisions), 0
			for i := g; i < asks; i += callers {
				d, err := ls[g%len(ls)].Allow(t.Context(), key)
				if err != nil {
					t.Error(err)
				}
				own[d.Source]++
				if d.Allowed {
					allowed++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			admitted += allowed
			for source, n := range own {
				decided[source] += n
			}
		})
	}
	wait.Wait()
	if !decided.Strayed() {
		require.Equal(t, 100, admitted)
	}
	require.LessOrEqual(t, admitted, 200, "twice the limit where the owner is late")
	return decided
}

func TestAllowAllSpendsOnAllOwnersOrNone(t *testing.T) {
	t.Parallel()
	nodes := testnode.Fleet(t, 3, nil)
	few := testnode.Limiters(t, nodes, weir.Limit{Name: "few", Algorithm: weir.SlidingLog, Rate: 5, Per: time.Hour})
	many := testnode.Limiters(t, nodes, weir.Limit{Name: "many", Algorithm: weir.TokenBucket, Rate: 1000, Per: 365 * 24 * time.Hour})
	for i, owner := range nodes {
		lab.WhileHealthy(t, func(t *testing.T) decisions {
			asks := []weir.Ask{
				{Limiter: few[0], Key: testnode.KeyOf(t, few[0], owner)},
				{Limiter: many[0], Key: testnode.KeyOf(t, many[0], nodes[(i+1)%3]), Units: 10},
				{Limiter: many[0], Key: testnode.KeyOf(t, many[0], nodes[(i+2)%3]), Units: 10},
			}
			for _, a := range asks {
				lab.Eventually(t, "it is reset", func() bool { return a.Limiter.Reset(t.Context(), a.Key) == nil })
			}
			for range 5 {
				ds, err := nodes[0].AllowAll(t.Context(), asks...)
				require.NoError(t, err)
				byOwners(t, ds...)
				require.True(t, ds.Allowed())
			}
			for range 20 {
				ds, err := nodes[0].AllowAll(t.Context(), asks...)
				require.NoError(t, err)
				byOwners(t, ds...)
				require.False(t, ds.Allowed())
				require.EqualValues(t, 950, ds[1].Remaining)
			}
			for _, a := range asks[1:] {
				lab.Eventually(t, fmt.Sprintf("owner %d: a denial costs the others nothing", i), func() bool {
					d, err := many[0].Peek(t.Context(), a.Key)
					require.NoError(t, err)
					byOwners(t, d)
					return d.Remaining == 950
				})
			}
			return nil
		})
	}
}
