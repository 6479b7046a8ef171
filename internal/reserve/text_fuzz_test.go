package reserve

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A node of this cluster has sealed the plaintext. A node of an older release may have sealed other
// bytes.
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
