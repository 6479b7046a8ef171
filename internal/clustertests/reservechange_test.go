package clustertests

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// The numbers of a bucket change between an estimate and its settlement. The settlement returns
// the part of the estimate above the cost, to within the unit by which a level is rounded up.
func TestEstimateIsReturnedAcrossChangeOfRate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorldOf(t, 3, false, seeded)
		for _, algorithm := range []weir.Algorithm{weir.TokenBucket, weir.LeakyBucket} {
			for i, c := range []struct {
				from, to  int64 // Rate, in units per hour
				reserved  int64
				taken     int64 // the number of units that are taken after the change
				actual    int64
				settledBy string // the node that opens the text, or empty to settle without a text
				late      bool   // whether the owner has the new numbers before the reserving node
			}{
				{1000, 500, 450, 0, 0, "", false},
				{1000, 500, 450, 0, 0, "c", false},
				{1000, 500, 450, 40, 0, "", false},
				{1000, 500, 450, 40, 100, "c", false},
				{1000, 500, 400, 40, 450, "c", false},
				{500, 1000, 450, 0, 0, "", false},
				{500, 1000, 450, 300, 50, "c", false},
				{1000, 500, 450, 0, 0, "", true},
				{1000, 500, 450, 0, 0, "c", true},
			} {
				name := fmt.Sprint(algorithm, " ", i)
				before := weir.Limit{Name: name, Algorithm: algorithm, Rate: c.from, Per: time.Hour, Version: 1}
				after := before
				after.Rate, after.Version = c.to, 2
				old, new := w.limiters(t, before), w.limiters(t, after)
				key := keyOf(t, old["a"])
				if c.late {
					require.Equal(t, 1, ask(t, new, key, 1, "a"))
				}
				v := reserve(t, old["b"], key, c.reserved)
				require.EqualValues(t, c.taken, ask(t, new, key, int(c.taken), "a"))
				remaining(t, new["a"], key)
				if c.settledBy != "" {
					v = opened(t, new[c.settledBy], key, v.Text())
				}
				require.NoError(t, v.Settle(t.Context(), c.actual))
				time.Sleep(delivered)
				require.InDelta(t, c.to-c.taken-c.actual, remaining(t, new["a"], key), 1, "%v %+v", algorithm, c)
			}
		}
	})
}

// If a node has old numbers, the receipt that it gets has the numbers of the owner. The node does
// not return units that have already drained by the numbers of the owner.
func TestDrainedUnitsAreNotReturnedByOldNumbers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorldOf(t, 3, false, seeded)
		before := weir.Limit{Name: "tokens", Algorithm: weir.TokenBucket, Rate: 1000, Per: time.Minute, Version: 1}
		after := before
		after.Rate, after.Version = 500, 2
		old, new := w.limiters(t, before), w.limiters(t, after)
		key := keyOf(t, old["a"])
		require.Equal(t, 1, ask(t, new, key, 1, "a"))
		v := reserve(t, old["b"], key, 450)
		time.Sleep(30 * time.Second) // 250 drain
		require.Equal(t, 250, ask(t, new, key, 250, "a"))
		require.NoError(t, v.Cancel(t.Context()))
		time.Sleep(delivered)
		require.InDelta(t, 250, remaining(t, new["a"], key), 1)
	})
}

// In this test, the owner has crashed, and the clock of the node that opens the text is wrong by
// ten minutes. The member that decides then relies on the age of the estimate.
func TestTextIsSettledWithSkewedClock(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		t.Run(skew.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newWorldOf(t, 2, false, seeded)
				skewed := seeded
				skewed.Now = func() time.Time { return time.Now().Add(skew) }
				w.start(t, "c", skewed)
				w.ready(t, w.names...)
				time.Sleep(time.Minute) // until the epoch of the cluster has begun
				type one struct {
					l    map[string]*weir.Limiter
					key  string
					text string
				}
				var all []one
				for _, algorithm := range algorithms {
					ls := w.limiters(t, weir.Limit{Name: algorithm.String(), Algorithm: algorithm, Rate: 100, Per: 30 * time.Minute, NoLeases: true})
					for _, key := range keysOf(ls["a"], 3) {
						v := reserve(t, ls["b"], key, 20)
						all = append(all, one{ls, key, v.Text()})
					}
				}
				time.Sleep(300 * time.Millisecond)
				w.network.Host("a").Kill()
				time.Sleep(2 * time.Second)
				for _, r := range all {
					require.NoError(t, opened(t, r.l["c"], r.key, r.text).Settle(t.Context(), 10))
				}
				time.Sleep(10 * time.Millisecond)
				for _, r := range all {
					require.InDelta(t, 90, remaining(t, r.l["b"], r.key), 0.5, r.l["b"].Limit().Name)
				}
			})
		})
	}
}
