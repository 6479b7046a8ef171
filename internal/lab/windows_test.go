package lab

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/weir-go/weir/internal/drawn"
)

// The oracle tries every window there is.
func TestWindowsFindTheFullestOfAll(t *testing.T) {
	const length, last = 10, 60
	rapid.Check(t, func(t *rapid.T) {
		admissions := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) [2]int64 {
			from := rapid.Int64Range(0, last).Draw(t, "from")
			return [2]int64{from, from + rapid.Int64Range(0, 12).Draw(t, "for")}
		}), 0, 40).Draw(t, "admissions")
		held := func(begin int64) (n int) {
			for _, a := range admissions {
				if a[0] >= begin && a[1] < begin+length {
					n++
				}
			}
			return n
		}
		want, got := 0, 0
		for begin := int64(-2 * length); begin <= last+2*length; begin++ {
			want = max(want, held(begin))
		}
		for begin, n := range Windows(len(admissions), func(i int) (int64, int64) { return admissions[i][0], admissions[i][1] }, []int64{17}, length) {
			require.Equal(t, held(begin), n, "from %d", begin)
			got = max(got, n)
		}
		require.Equal(t, want, got)
	})
}
