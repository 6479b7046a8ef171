package rules

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Any published factor and suggestion leaves valid limits in force.
func FuzzFactor(f *testing.F) {
	f.Add([]byte(`{"factor":0.5,"reason":"slow","at":"2025-11-30T08:00:00Z"}`))
	f.Add([]byte(`{"factor":1e-300,"ceiling":-1,"at":"0000-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"denied":0.5,"since":"0000-01-01T00:00:00Z","rate":9223372036854775807,"burst":-1,"at":"9999-12-31T23:59:59.999999999Z"}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		var shared sharedValues
		now := time.Now()
		b := newSharedBook(t, &shared, &now, strings.Replace(fmt.Sprintf(adaptive, 1), "soft:", "multiply: false\n  soft:", 1)+
			"- {name: hot, key: ip, raise: {}, limit: {rate: 100, per: 1m}}\n")
		require.NoError(t, shared.Publish("adapt/r", 0, value))
		require.NoError(t, shared.Publish("hot/hot/"+strings.Repeat("0", 32), 0, value))
		b.refresh()
		for _, a := range b.Current().Adaptations() {
			require.GreaterOrEqual(t, a.Factor, 0.1)
			require.LessOrEqual(t, a.Factor, 1.0)
		}
		for _, r := range b.Current().Rules() {
			require.NoError(t, b.Current().InForce(&r.Limits[0]).ForTier("").Validate())
		}
		for _, s := range b.Suggestions() {
			_ = b.OverrideID(s.Limit, s.ID, Override{Rate: s.Rate, Burst: s.Burst})
		}
	})
}
