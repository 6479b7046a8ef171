package httplimit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Any value of Accept selects a valid form, and each quality is between 0 and 1.
func FuzzAccept(f *testing.F) {
	f.Add("text/*;q=0.1, */*;q=2", "application/json")
	f.Add("application/problem+json;q=NaN;q=1", ";;q==,,")
	f.Add("TEXT/plain; Q = 1e-400", "\x00/\xff")
	f.Fuzz(func(t *testing.T, one, other string) {
		chosen := formFor([]string{one, other})
		require.Less(t, chosen, forms)
		for _, parameters := range []string{one, other} {
			q := qualityOf(parameters)
			require.True(t, q >= 0 && q <= 1, "%v", q)
		}
	})
}
