package processtests

import (
	"fmt"
	"log/slog"
	"sync"
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

// admitsTheLimit checks a key of a limit of 100 from many goroutines. The argument asks
// is the number of checks of all goroutines together. Each goroutine uses a single
// limiter.
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
	require.LessOrEqual(t, admitted, 200, "at most twice the limit if the owner is late")
	return decided
}

func TestRingPartsAddUpToWhole(t *testing.T) {
	t.Parallel()
	nodes := testnode.Fleet(t, 3, nil)
	parts := nodes[0].Ring()
	require.Len(t, parts, 3)
	sum := 0.0
	for _, m := range nodes[1].Members() {
		require.InDelta(t, 1.0/3, parts[m.Name], 0.1)
		sum += parts[m.Name]
	}
	require.InDelta(t, 1, sum, 1e-9)
	for _, n := range nodes {
		require.Equal(t, parts, n.Ring())
	}

	l, err := nodes[0].Limiter(weir.Limit{Name: "l", Rate: 1, Per: 1e9})
	require.NoError(t, err)
	owned := make(map[string]float64)
	for i := range 20_000 {
		owned[l.Owner(string([]byte{byte(i), byte(i >> 8)})).Name] += 1.0 / 20_000
	}
	for name, part := range parts {
		require.InDelta(t, part, owned[name], 0.02, "each member owns its part of the ring")
	}
}

func TestFloodOfDeniedKeyAllocatesNothing(t *testing.T) {
	if testenv.Race {
		t.Skip("under the race detector, a sync.Pool drops values at random")
	}
	nodes := testnode.Fleet(t, 2, nil)
	ls := testnode.Limiters(t, nodes, weir.Limit{Name: "test", Rate: 1, Per: time.Hour})
	keys := []string{testnode.KeyOf(t, ls[0], nodes[0]), testnode.KeyOf(t, ls[0], nodes[1])}
	for range 2 {
		for _, key := range keys {
			_, err := ls[0].Allow(t.Context(), key)
			require.NoError(t, err)
		}
	}
	ctx, asks, ds := t.Context(), []weir.Ask{{Limiter: ls[0], Key: keys[0]}, {Limiter: ls[0], Key: keys[1]}}, make(weir.Decisions, 2)
	var d weir.Decision
	for name, ask := range map[string]func(){
		"alone":    func() { d, _ = ls[0].Allow(ctx, keys[1]) },
		"together": func() { ds, _ = nodes[0].AllowAllInto(ctx, asks, ds); d = ds[1] },
	} {
		// The node asks the owner once a second, and messages between the nodes allocate memory too.
		lab.Eventually(t, "a thousand denials come from pushbacks without an allocation: "+name, func() bool {
			ask()
			const runs = 1000
			before := nodes[1].Stats().Served
			allocated := testing.AllocsPerRun(runs, ask)
			asked := nodes[1].Stats().Served - before
			require.Less(t, asked, uint64(runs/2))
			return asked == 0 && allocated == 0 && d.Source == weir.Pushback
		})
	}
}
