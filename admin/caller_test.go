package admin

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
)

// callers is an Observer that keeps the tiers of checks.
type callers []string

func (c *callers) Decided(ctx context.Context, _ weir.DecisionEvent) {
	*c = append(*c, weir.CallerOf(ctx).Tier)
}

func (c *callers) Hopped(context.Context, weir.HopEvent) {}

func (c *callers) UsesCallers() bool { return true }

func TestObserverLearnsTierOfEachCheck(t *testing.T) {
	seen := new(callers)
	a := newTestAPIOn(t, testnode.Start(t, weir.Config{Observer: seen}), `
tiers: {gold: {multiply: 2}}
rules:
- {name: a, match: {path: /a}, key: user, limit: {rate: 5, per: 1m}}
- {name: h, match: {path: /h}, key: user, limit: {algorithm: in_flight, rate: 5}}`)
	for i, c := range []struct{ path, body string }{
		{"/v1/take", `{"limit":"a","key":"u","tier":"gold"}`},
		{"/v1/take", `{"limit":"a","key":"u","tier":"gold","at_most":true}`},
		{"/v1/debit", `{"limit":"a","key":"u","tier":"gold"}`},
		{"/v1/reserve", `{"limit":"a","key":"u","tier":"gold"}`},
		{"/v1/hold", `{"limit":"h","key":"u","tier":"gold"}`},
		{"/v1/request", `{"path":"/a","user":"u","tier":"gold"}`},
	} {
		w := a.ask(http.MethodPost, c.path, c.body)
		require.Equal(t, http.StatusOK, w.Code, "%s: %s", c.path, w.Body)
		require.Len(t, *seen, i+1, c.path)
		require.Equal(t, "gold", (*seen)[i], c.path)
	}
}
