package reserve

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Only a node of this cluster can have sealed the plaintext. But a node of an older release may have
// sealed a plaintext of another form, so parse must handle any bytes.
func FuzzReservation(f *testing.F) {
	f.Add(make([]byte, textBytes))
	f.Add(slices.Repeat([]byte{1}, textBytes))
	f.Add(slices.Repeat([]byte{1}, bucketTextBytes))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, plain []byte) {
		var v Reservation
		if v.parse(plain) {
			require.Positive(t, v.ask.Units)
			require.GreaterOrEqual(t, v.life, leastLife)
			require.LessOrEqual(t, v.life, longestLife)
		}
	})
}
