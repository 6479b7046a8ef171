package stats

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
)

// A Limiter gets its counters once, and counts each check there.
func Example() {
	var m Meters
	id := bucket.ID{Hi: 7, Lo: 9}
	of := m.Limits.CountersOf("per user")
	for range 3 {
		r := wire.Result{Source: wire.Forwarded}
		r.Allowed = true
		if weight := of.CountDecision(id, &r, false); weight > 0 {
			m.RecordDuration(wire.Forwarded, 300*time.Microsecond, weight)
		}
	}
	of.CountDecision(id, &wire.Result{Source: wire.Forwarded}, false)
	for name, limit := range m.Limits.AllCounters() {
		fmt.Println(name, limit.Sum(wire.Forwarded))
	}
	l := m.Latency(wire.Forwarded)
	fmt.Println(l.Count, l.Sum)
	// Output:
	// per user {3 1}
	// (other) {0 0}
	// 3 900µs
}

// countDenials counts a denial for each of these names, and returns the denials by name.
func countDenials(m *Limits, names ...string) map[string]uint64 {
	for i, name := range names {
		m.CountersOf(name).CountDecision(bucket.ID{Hi: uint64(i)}, &wire.Result{Source: wire.Owner}, false)
	}
	sums := make(map[string]uint64)
	for name, limit := range m.AllCounters() {
		sums[name] = limit.Sum(wire.Owner).Denied
	}
	return sums
}

// newNames returns n names.
func newNames(n int) (names []string) {
	for i := range n {
		names = append(names, strconv.Itoa(i))
	}
	return names
}

func TestLimitNamedOthersLosesNoDecision(t *testing.T) {
	for about, c := range map[string]struct {
		names []string
		want  map[string]uint64
	}{
		"single name":           {[]string{Others}, map[string]uint64{Others: 1}},
		"name before the bound": {append([]string{Others}, newNames(MaxNames+2)...), map[string]uint64{"0": 1, "4095": 1, Others: 3}},
		"name beyond the bound": {append(newNames(MaxNames+2), Others), map[string]uint64{"0": 1, "4095": 1, Others: 3}},
	} {
		t.Run(about, func(t *testing.T) {
			var sum uint64
			for name, n := range countDenials(new(Limits), c.names...) {
				sum += n
				if want, is := c.want[name]; is {
					require.Equal(t, want, n, name)
				}
			}
			require.EqualValues(t, len(c.names), sum)
		})
	}
}

func TestConcurrentDecisionsAreCountedOnce(t *testing.T) {
	var m Limits
	sum := func(source wire.Source) (sum Outcomes) {
		for _, limit := range m.AllCounters() {
			o := limit.Sum(source)
			sum.Allowed += o.Allowed
			sum.Denied += o.Denied
		}
		return sum
	}
	var wait sync.WaitGroup
	for g := range 4 {
		wait.Go(func() {
			var last Outcomes
			for i := range 1000 {
				r := wire.Result{Source: wire.Owner}
				r.Allowed = i%4 == 1
				m.CountersOf(fmt.Sprint(i%3)).CountDecision(bucket.ID{Hi: uint64(g * i)}, &r, i%2 == 0)
				if i%100 == 0 {
					now := sum(wire.Owner)
					if now.Allowed < last.Allowed || now.Denied < last.Denied {
						t.Errorf("a counter fell from %v to %v", last, now)
					}
					last = now
				}
			}
		})
	}
	wait.Wait()
	require.Equal(t, Outcomes{1000, 1000}, sum(wire.Owner))
	require.Equal(t, Outcomes{0, 2000}, sum(Shadows))
}

// Checks of different keys do not share a cache line.
func TestStripesFillWholeCacheLines(t *testing.T) {
	require.Zero(t, unsafe.Sizeof(stripe{})%64)
	var m Limit
	for key := range uint64(stripes) {
		m.CountDecision(bucket.ID{Hi: key}, &wire.Result{Source: wire.Owner}, false)
	}
	for i := range m.stripes {
		require.EqualValues(t, 1, m.stripes[i].denied[wire.Owner].Load())
	}
}

func TestWeightsSumToNumberOfDecisions(t *testing.T) {
	sum, last := uint64(0), uint64(0)
	residues := make(map[uint64]map[uint64]uint64)
	for n := uint64(1); n <= 1<<20; n++ {
		weight := weightOf(n)
		sum += weight
		if max(n, sum)-min(n, sum) > 192 { // a million calls of require would cost more than the rest of the test
			t.Fatalf("the weights of %d decisions sum to %d", n, sum)
		}
		if weight == 0 {
			continue
		}
		if n > measuredOf {
			require.EqualValues(t, measuredOf, weight)
			require.LessOrEqual(t, n-last, uint64(89))
		} else {
			require.EqualValues(t, 1, weight)
		}
		last = n
		for _, period := range []uint64{2, 3, 8, 64} {
			if residues[period] == nil {
				residues[period] = make(map[uint64]uint64)
			}
			residues[period][n%period] += weight
		}
	}
	for period, of := range residues {
		require.Len(t, of, int(period))
		for residue, weight := range of {
			require.InEpsilon(t, float64(sum)/float64(period), float64(weight), 0.05, "decisions with a number of %d modulo %d", residue, period)
		}
	}
}

func TestBucketsCountDurationsUpToTheirBounds(t *testing.T) {
	var m Meters
	for _, bound := range LatencyBounds() {
		m.RecordDuration(wire.Owner, bound, 1)
		m.RecordDuration(wire.Owner, bound+1, 64)
	}
	l := m.Latency(wire.Owner)
	require.EqualValues(t, 65*len(bounds), l.Count)
	for i, got := range l.Buckets {
		require.EqualValues(t, 65*i+1, got)
	}
	require.Zero(t, m.Latency(wire.Owner+1).Count)
}
