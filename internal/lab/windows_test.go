package lab

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/weir-go/weir/internal/testenv"
)

func TestFullestWindowIsFound(t *testing.T) {
	at := func(moments ...int64) (all []Interval) {
		for _, m := range moments {
			all = append(all, Interval{m, m})
		}
		return all
	}
	for name, c := range map[string]struct {
		admitted []Interval
		want     int64
	}{
		"no admission":                                     {nil, 0},
		"a window is half-open":                            {at(0, 100), 1},
		"a window holds a nearer admission":                {at(0, 99), 2},
		"any window counts, not just those of a grid":      {at(0, 90, 95, 140, 150, 190), 4},
		"the order does not matter":                        {at(190, 95, 0, 150, 90, 140), 4},
		"one moment can hold many":                         {at(7, 7, 7), 3},
		"an admission that may lie outside does not count": {[]Interval{{0, 0}, {50, 120}, {60, 70}}, 2},
		"an admission that certainly lies inside counts":   {[]Interval{{10, 20}, {50, 109}, {60, 70}}, 3},
		"an admission across a freeze is in no window":     {[]Interval{{0, 500}, {10, 11}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			found := make([]Fullest, 1)
			JudgeWindows(found, "key", c.admitted, nil, 100, 10)
			require.Equal(t, c.want, found[0].Held)
		})
	}
}

func TestInFlightCountsAdmissionsWithinRoundTrip(t *testing.T) {
	for moment, want := range map[int64]int64{494: 0, 495: 1, 500: 1, 505: 1, 506: 0} {
		require.Equal(t, want, InFlight([]Interval{{moment, moment}, {100, 200}}, 500, 5), moment)
	}
	require.EqualValues(t, 1, InFlight([]Interval{{400, 600}}, 500, 5))
}

// The oracle checks every possible window. Each occasion of kind 1 raises the bound of a
// window by its Extra. The occasions of kind 2 raise it only once.
func TestFullestWindowEqualsThatOfOracle(t *testing.T) {
	const length, last = 10, 60
	rapid.Check(t, func(t *rapid.T) {
		intervals := func(longest int64, most int, label string) []Interval {
			return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Interval {
				from := rapid.Int64Range(0, last).Draw(t, "from")
				return Interval{from, from + rapid.Int64Range(0, longest).Draw(t, "for")}
			}), 0, most).Draw(t, label)
		}
		admitted, end := intervals(12, 40, "admitted"), int64(0)
		for _, a := range admitted {
			end = max(end, a.To)
		}
		var occasions []Occasion
		for _, kind := range []int{2, 1} { // the last kind is not the highest
			for _, i := range intervals(8, 3, "occasions") {
				occasions = append(occasions, Occasion{Interval: i, Kind: kind, Extra: int64(5 * kind), Once: kind == 2})
			}
		}
		want, got := make([]Fullest, 3), make([]Fullest, 3)
		for begin := int64(-2 * length); begin <= last+2*length; begin++ {
			held, window := int64(0), Interval{begin, begin + length - 1}
			for _, a := range admitted {
				if a.From >= window.From && a.To <= window.To {
					held++
				}
			}
			window.To = min(window.To, end)
			kind, most, once := 0, int64(1), int64(0)
			for _, o := range occasions {
				if o.Touches(window) {
					kind = max(kind, o.Kind)
					if o.Once {
						once = o.Extra
					} else {
						most += o.Extra
					}
				}
			}
			if most += once; held > 0 && (want[kind].Of == "" || held-most > want[kind].Held-want[kind].Most) {
				want[kind] = Fullest{Held: held, Most: most, Of: "key"}
			}
		}
		JudgeWindows(got, "key", admitted, occasions, time.Duration(length), 1)
		for kind := range got {
			require.Equal(t, want[kind].Held-want[kind].Most, got[kind].Held-got[kind].Most)
		}
	})
}
