package weir

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/owner"
	"github.com/weir-go/weir/internal/wire"
)

// denied is the answer to a take, a second before the same ask is admitted or another
// time.
func denied(retry time.Duration) *wire.Result {
	return &wire.Result{Result: bucket.Result{Limit: 10, Remaining: 2, RetryAfter: retry, ResetAfter: 2 * retry}, Source: wire.Forwarded, Firm: true, ResetNumber: owner.NoReset}
}

// A node that has authority answers by the count.
func TestANodeDoesNotHoldItsOwnKeysBack(t *testing.T) {
	n := solo(t, Config{})
	l := limiter(t, n, Limit{Rate: 10, Per: time.Minute})
	a := wire.Ask{ID: l.id("k"), Limit: &l.numbers, Units: 1}
	now := n.env.Time()
	require.False(t, n.asker.Denies(&a, now, new(wire.Result)))
	n.asker.Learn(&a, denied(time.Hour), 0, now)
	require.True(t, n.asker.Denies(&a, now, new(wire.Result)))
	d, err := l.Allow(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, Owner, d.Source)
	require.True(t, d.Allowed)
}
