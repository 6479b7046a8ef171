package processtests

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/internal/testnode"
)

func TestFloodOfDeniedKeyAllocatesNothing(t *testing.T) {
	if testenv.Race {
		t.Skip("under the race detector a pool forgets at random")
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
		lab.Eventually(t, "a thousand denials are remembered, and none allocates: "+name, func() bool {
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
