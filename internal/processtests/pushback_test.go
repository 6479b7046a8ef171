package processtests

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/internal/realtime"
)

func TestAFloodOfADeniedKeyAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("under the race detector a pool forgets at random")
	}
	nodes := fleet(t, 2, nil)
	ls := limiters(t, nodes, weir.Limit{Name: "test", Rate: 1, Per: time.Hour})
	keys := []string{ownedBy(t, ls[0], nodes[0]), ownedBy(t, ls[0], nodes[1])}
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
		realtime.Eventually(t, "a thousand denials are remembered, and none allocates: "+name, func() bool {
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

// The nodes use real sockets, and many checks run at the same time.
func TestFewOfManyAsksAtATimeReachTheOwnerOfADeniedKey(t *testing.T) {
	t.Parallel()
	const asks = 60_000 // two thirds of them on the nodes that do not own the key
	realtime.WhileHealthy(t, func(t *testing.T) decisions {
		nodes := fleet(t, 3, nil)
		ls := limiters(t, nodes, weir.Limit{Name: "test", Rate: 100, Per: time.Hour})
		decided := admitsTheLimit(t, ls, ownedBy(t, ls[0], nodes[0]), 24, asks)
		served := nodes[0].Stats().Served
		t.Logf("of %d asks on other nodes, %d reached the owner", asks*2/3, served)
		require.LessOrEqual(t, served, uint64(100+asks*2/100))
		return decided
	})
}

// BenchmarkDeniedByPushback compares a denial by a pushback with a denial of a key that the node
// owns.
func BenchmarkDeniedByPushback(b *testing.B) {
	nodes := fleet(b, 2, nil)
	ls := limiters(b, nodes, weir.Limit{Name: "test", Rate: 1, Per: time.Hour})
	ctx := b.Context()
	for i, name := range []string{"owned", "remembered"} {
		b.Run(name, func(b *testing.B) {
			key := ownedBy(b, ls[0], nodes[i])
			for range 2 {
				if _, err := ls[0].Allow(ctx, key); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if d, err := ls[0].Allow(ctx, key); err != nil || d.Allowed {
					b.Fatal(d, err)
				}
			}
		})
	}
}
