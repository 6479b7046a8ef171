package clustertests

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// The IDs of counts depend on the Seed, so a new Seed makes a new cluster. To replace a leaked
// Seed, an operator runs a second cluster beside the first, in the same processes. For a while,
// both clusters must admit each check. The procedure is in docs/rotation.md.

// stage is a step of the procedure for a process.
type stage int

const (
	oldAlone stage = iota
	oldFirst       // the old cluster decides, and the new cluster counts the admitted checks
	both           // both clusters must admit a check
	nextAlone
)

// admits replaces Limiter.Allow in the service. The argument next is the limiter of nextNode.
func (s stage) admits(t *testing.T, old, next *weir.Limiter, nextNode *weir.Node, key string) bool {
	if s == nextAlone {
		return allowed(t, next, key, 1).Allowed
	}
	if !allowed(t, old, key, 1).Allowed {
		return false
	}
	switch s {
	case oldFirst:
		_, err := nextNode.AllowAll(t.Context(), weir.Ask{Limiter: next, Key: key, Shadow: true})
		require.NoError(t, err)
	case both:
		if !allowed(t, next, key, 1).Allowed {
			require.NoError(t, old.Refund(t.Context(), key, 1))
			return false
		}
	}
	return true
}

// mostAboveRate returns the maximum, over all intervals, of the admitted units minus a burst of l
// and minus the units of its rate in the interval.
func mostAboveRate(l weir.Limit, when []time.Time) (most float64) {
	floor := 0.0 // minimum, over all earlier times, of the units admitted until then minus the units of the rate until then
	for i, at := range when {
		granted := float64(l.Rate) * float64(at.Sub(when[0])) / float64(l.Per)
		floor = min(floor, float64(i)-granted)
		most = max(most, float64(i+1)-granted-floor-float64(l.Rate))
	}
	return most
}

// The bounds are in docs/rotation.md, for keys that are checked all the time. A bucket may admit
// another burst, once. Without the stages in which both clusters count, each limit may be admitted
// once more.
func TestLeakedSeedIsReplacedWithinLimits(t *testing.T) {
	// Each key is checked four times as often as its rate. No check arrives exactly when an earlier unit ends to count:
	// the next cluster could deny a shadow check by the difference of two latencies, and count a unit less.
	const per, rate, every = 15 * time.Second, 15, 251 * time.Millisecond
	for name, stages := range map[string][]stage{
		"cluster beside the first": {oldFirst, oldAlone, oldFirst, both, oldFirst, both, nextAlone},
		"one rollout":              {nextAlone},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				old := newWorldOf(t, 3, false, weir.Config{Seed: []byte("a seed that leaked")})
				next := newWorldOf(t, 3, false, weir.Config{Seed: []byte("a seed of tomorrow")})
				at, when, begun := make(map[string]stage), make([][]time.Time, len(algorithms)), time.Now()
				limit := func(k int) weir.Limit {
					return weir.Limit{Name: algorithms[k].String(), Algorithm: algorithms[k], Rate: rate, Per: per}
				}
				check := func(d time.Duration) {
					for turn, end := 0, time.Now().Add(d); time.Now().Before(end); turn++ {
						tick := time.After(every)
						for k := range algorithms {
							on := old.names[(turn+k)%len(old.names)]
							olds, nexts := old.limiters(t, limit(k)), next.limiters(t, limit(k))
							if at[on].admits(t, olds[on], nexts[on], next.nodes[on], fmt.Sprint("key ", k)) {
								when[k] = append(when[k], time.Now())
							}
						}
						<-tick
					}
				}
				check(2 * per)
				for i, s := range stages {
					for _, name := range old.names {
						at[name] = s
						check(4 * time.Second)
					}
					if s == nextAlone || s == oldFirst && i > 0 {
						check(2 * per)
					}
				}
				whole := float64(time.Since(begun)) / float64(per) * rate
				for k, all := range when {
					// The time of an answer differs from the time of the owner by some milliseconds.
					window, above := mostWithin(per-5*time.Millisecond, all), mostAboveRate(limit(k), all)
					t.Logf("%v: %d at most in a window, %.1f above burst and rate, %d in all", algorithms[k], window, above, len(all))
					require.GreaterOrEqual(t, float64(len(all)), 0.97*whole, algorithms[k])
					switch {
					case len(stages) == 1 && algorithms[k] == weir.SlidingLog:
						require.Greater(t, window, rate)
						require.LessOrEqual(t, window, 2*rate)
					case len(stages) == 1:
					case algorithms[k] == weir.SlidingLog:
						require.LessOrEqual(t, window, rate)
					case slices.Contains([]weir.Algorithm{weir.SlidingWindow, weir.FixedWindow}, algorithms[k]):
						require.Less(t, window, 2*rate)
					default:
						require.LessOrEqual(t, above, float64(rate))
					}
				}
			})
		})
	}
}
