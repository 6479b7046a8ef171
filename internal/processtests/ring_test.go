package processtests

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
)

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
		require.InDelta(t, part, owned[name], 0.02, "what the ring gives is what owners own")
	}
}
