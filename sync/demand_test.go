package countsync

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/testenv"
)

// far is a network with round trips of 100 ms.
var far = network{delay: 50 * ms, jitter: 2 * ms}

func perSecond(a bucket.Algorithm) bucket.Limit {
	return bucket.Limit{Algorithm: a, Rate: 1000, Per: time.Second, Version: 1}
}

func perMinute(a bucket.Algorithm) bucket.Limit {
	return bucket.Limit{Algorithm: a, Rate: 5, Per: time.Minute, Version: 1}
}

func eachAlgorithm(t *testing.T, f func(t *testing.T, a bucket.Algorithm)) {
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			f(t, a)
		})
	}
}

// sample returns the whole list in the full run, and otherwise n elements, which depend on the
// algorithm.
func sample[T any](t *testing.T, a bucket.Algorithm, list []T, n int) (chosen []T) {
	for i := range testenv.PickFull(t, n, len(list)) {
		chosen = append(chosen, list[(n*int(a)+i)%len(list)])
	}
	return chosen
}

// settle gives new regions the time to learn that there are no earlier grants.
func (w *globe) settle() {
	w.run(12 * sec)
	w.said = traffic{}
}

// saturate returns the granted units as a part of the limit, while each region asks for more than the
// whole limit. The measurement lasts a minute, or five Per if these are longer.
func saturate(t failer, l bucket.Limit, net network, every []int64) (part float64) {
	w := newGlobe(t, 1, 3, l, net)
	w.settle()
	for i, r := range w.regions {
		r.demand(every[i], 1, 1000, func() bool { return true })
	}
	w.run(2 * int64(l.Per))
	granted := w.asks.granted
	span := max(60*sec, 5*int64(l.Per))
	w.run(span)
	w.checkAdmissions()
	return float64(w.asks.granted-granted) / (float64(l.Rate) * float64(span) / float64(l.Per))
}

func TestSaturatedRegionsAreGrantedNearlyAll(t *testing.T) {
	testenv.SkipOneGoroutine(t)
	eachAlgorithm(t, func(t *testing.T, a bucket.Algorithm) {
		paces := [][]int64{{4 * ms, 4 * ms, 4 * ms}, {2 * ms, 4 * ms, 16 * ms}}
		for _, every := range sample(t, a, paces, 1) {
			part := saturate(t, perSecond(a), far, every)
			require.GreaterOrEqual(t, part, 0.97)
			require.LessOrEqual(t, part, 1.02) // above 1 because of an initial burst
		}
	})
}

// singleNode is a single node with the whole limit. singleNode gets the same asks as the regions.
type singleNode struct {
	store   *bucket.Store
	granted int64
}

// grantedAfterMove returns the units that are granted after all demand has moved from one region
// to another, as parts of the units that a single node with the whole limit would grant. The
// demand moves at moveTime. The first span begins after a pause, or with the next window if
// windows have fixed times.
func grantedAfterMove(t failer, l bucket.Limit, net network, moveTime, pause int64, spans ...int64) (parts []float64) {
	w := newGlobe(t, 1, 3, l, net)
	w.settle()
	whole := singleNode{store: bucket.NewStore(16, bucket.Salt{})}
	place := 0
	every := max(2*ms, int64(l.Per)/500)
	var again func()
	again = func() {
		r := w.regions[place]
		for range 20 {
			limit := r.whole()
			allowed := whole.store.Take(w.ids[0], &limit, w.now, 1).Allowed
			if allowed {
				whole.granted++
			}
			if !r.ask(1).Allowed && !allowed {
				break
			}
		}
		w.after(every, again)
	}
	again()
	w.run(moveTime)
	place = 1
	w.run(pause)
	if into := w.now % int64(l.Per); into > 0 && (l.Algorithm == bucket.SlidingWindow || l.Algorithm == bucket.FixedWindow) {
		w.run(int64(l.Per) - into)
	}
	granted, could := w.asks.granted, whole.granted
	for _, span := range spans {
		w.run(span)
		parts = append(parts, float64(w.asks.granted-granted)/float64(max(1, whole.granted-could)))
	}
	w.checkAdmissions()
	return parts
}

func TestHoldingsFollowDemandThatMoves(t *testing.T) {
	testenv.SkipOneGoroutine(t)
	eachAlgorithm(t, func(t *testing.T, a bucket.Algorithm) {
		limits := []bucket.Limit{perSecond(a), {Algorithm: a, Rate: 300, Per: 10 * time.Second, Version: 1}, perMinute(a)}
		for _, l := range sample(t, a, limits, 1) {
			from := max(3*2*far.delay+int64(ExchangeEvery), int64(l.Per))
			per := int64(l.Per)
			moves := []int64{per / 3}
			if a == bucket.SlidingWindow { // whose result depends on the elapsed part of the window
				moves = append(moves, per*9/10)
			}
			for _, at := range moves {
				parts := grantedAfterMove(t, l, far, 5*per+at, from, per, per, 2*per, 4*per)
				for _, part := range parts {
					require.GreaterOrEqual(t, part, 0.9)
				}
			}
		}
	})
}

// longestWait makes one user ask for all units of a limit in one region, and repeat each denied ask
// after RetryAfter. longestWait returns the longest time until a unit was granted.
func longestWait(t failer, l bucket.Limit, net network, region int, pace int64) (longest int64) {
	w := newGlobe(t, 7, 3, l, net)
	w.settle()
	for range l.Capacity() {
		asked := w.now
		for {
			res := w.regions[region].ask(1)
			if res.Allowed {
				break
			}
			if w.now-asked > 10*sec {
				return w.now - asked
			}
			w.run(int64(res.RetryAfter))
		}
		longest = max(longest, w.now-asked)
		w.run(max(0, pace-(w.now-asked)))
	}
	return longest
}

func TestLoneRegionIsGrantedWholeSmallLimit(t *testing.T) {
	testenv.SkipOneGoroutine(t)
	eachAlgorithm(t, func(t *testing.T, a bucket.Algorithm) {
		l := perMinute(a)
		for region := range 3 {
			paces := []int64{0, 10 * ms, 100 * ms, 300 * ms, sec, 3 * sec, 10 * sec, 12 * sec}
			for _, pace := range sample(t, a, paces, 3) {
				longest := longestWait(t, l, far, region, pace)
				require.LessOrEqual(t, longest, 500*ms, fmt.Sprintf("region %d, every %v", region, time.Duration(pace)))
			}
		}
	})
}

// A region with little demand gets its part if two other regions ask for more than the limit.
func TestRegionOfLittleDemandHasItsPart(t *testing.T) {
	testenv.SkipOneGoroutine(t)
	eachAlgorithm(t, func(t *testing.T, a bucket.Algorithm) {
		w := newGlobe(t, 2, 3, perSecond(a), far)
		w.settle()
		little := false
		w.regions[0].demand(4*ms, 1, 1000, func() bool { return true })
		w.regions[1].demand(4*ms, 2, 1000, func() bool { return true })
		w.run(10 * sec) // by the end of this time, region 2 has granted all of its initial units
		var granted, asked int64
		every := sec / 40 // 4 % of the limit
		var again func()
		again = func() {
			if w.regions[2].ask(1).Allowed && little {
				granted++
			}
			if little {
				asked++
			}
			w.after(every, again)
		}
		again()
		w.run(5 * sec)
		little = true
		w.run(20 * sec)
		w.checkAdmissions()
		require.GreaterOrEqual(t, granted, asked*8/10)
	})
}
