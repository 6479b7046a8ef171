package countsync

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-go/weir/bucket"
)

// The rules that byDemand was chosen among.
var rules = []struct {
	name string
	rule rule
}{
	{"by demand", byDemand},
	{"half of what is unspent", func(_ demands, _, theirs, unspent int64) int64 { return theirs + (unspent+1)/2 }},
	{"all that is unspent", func(_ demands, _, theirs, unspent int64) int64 { return theirs + unspent }},
	{"never any", func(demands, int64, int64, int64) int64 { return 0 }},
}

// has90 is how long after all demand has moved to a region it holds 90 % of the limit.
func has90(l bucket.Limit, t failer, use func(*globe)) (took time.Duration, ok bool) {
	w := newGlobe(t, 3, 3, l, far)
	use(w)
	w.settle()
	place := 0
	every := max(2*ms, int64(l.Per)/500)
	for i, r := range w.regions {
		r.demand(every, 1, 20, func() bool { return i == place })
	}
	w.run(5*int64(l.Per) + int64(l.Per)/3)
	place = 1
	from := w.now
	for w.now-from < 10*int64(l.Per) {
		if x := w.regions[1].holding(0); x != nil && 10*x.held >= 9*l.Capacity() {
			return time.Duration(w.now - from), true
		}
		w.run(10 * ms)
	}
	return 0, false
}

// ordinary is the part that is granted of what three regions ask for, 70, 15 and 5 %
// of the limit, at times of chance.
func ordinary(l bucket.Limit, t failer, use func(*globe)) float64 {
	var granted, denied int64
	for seed := uint64(1); granted+denied < 500; seed++ {
		w := newGlobe(t, seed, 3, l, far)
		use(w)
		w.settle()
		for i, part := range []float64{0.70, 0.15, 0.05} {
			r, mean := w.regions[i], float64(l.Per)/(part*float64(l.Rate))
			var again func()
			again = func() {
				r.ask(1)
				w.after(int64(w.rand.ExpFloat64()*mean), again)
			}
			w.after(int64(w.rand.ExpFloat64()*mean), again)
		}
		w.run(2 * int64(l.Per))
		w.asks.granted, w.asks.denied = 0, 0
		w.run(20 * int64(l.Per))
		granted, denied = granted+w.asks.granted, denied+w.asks.denied
	}
	return float64(granted) / float64(granted+denied)
}

// BenchmarkRulesOfDemand says what each rule comes to. Its times mean nothing:
// go test ./sync -run '^$' -bench RulesOfDemand -benchtime 1x
func BenchmarkRulesOfDemand(b *testing.B) {
	for _, l := range []bucket.Limit{perMinute(bucket.SlidingLog), perMinute(bucket.TokenBucket), perSecond(bucket.SlidingLog), perSecond(bucket.TokenBucket)} {
		every := max(4*ms, int64(l.Per)/500)
		for _, r := range rules {
			b.Run(fmt.Sprintf("%v/%d per %v/%s", l.Algorithm, l.Rate, l.Per, r.name), func(b *testing.B) {
				for range b.N {
					use := func(w *globe) { w.rule = r.rule }
					even, w := saturate(b, l, far, use, []int64{every, every, every})
					took, _ := has90(l, b, use)
					var denied, longest int64
					for region := range 3 {
						for _, pace := range []int64{0, sec, 10 * sec} {
							if l.Rate == 5 {
								most, denials, _ := lone(b, l, far, use, region, pace)
								denied, longest = denied+int64(denials), max(longest, most)
							}
						}
					}
					span := max(60, 5*l.Per.Seconds())
					b.ReportMetric(100*even, "%-saturated")
					b.ReportMetric(100*ordinary(l, b, use), "%-ordinary")
					b.ReportMetric(took.Seconds(), "s-to-90%")
					b.ReportMetric(float64(denied), "lone-denials/45")
					b.ReportMetric(float64(longest/ms), "ms-lone")
					b.ReportMetric(float64(w.said.statements)/span, "statements/s")
					b.ReportMetric(float64(w.said.bytes)/span, "bytes/s")
					b.ReportMetric(0, "ns/op")
				}
			})
		}
	}
}

// looser counts in each region and tells the others ten times a second what it has
// spent: it spends up to the limit less what the others are known to have spent.
func looser(l bucket.Limit, on func(region int) bool, every, span int64) (admitted []spell, denied int) {
	stores := []*bucket.Store{bucket.NewStore(16, bucket.Salt{}), bucket.NewStore(16, bucket.Salt{}), bucket.NewStore(16, bucket.Salt{})}
	spent := make([]int64, len(stores))
	type word struct{ at, units int64 }
	told := make([][]word, len(stores))
	id := bucket.ID{Hi: 1, Lo: 1}
	for now := int64(0); now < span; now += ms {
		for i, s := range stores {
			for j := range told {
				for len(told[j]) > 0 && told[j][0].at <= now && i == 0 {
					for k := range stores {
						if k != j {
							stores[k].SpendElsewhere(id, &l, now, told[j][0].units)
						}
					}
					told[j] = told[j][1:]
				}
			}
			for now%every == 0 && on(i) {
				if !s.Take(id, &l, now, 1).Allowed {
					denied++
					break
				}
				spent[i]++
				admitted = append(admitted, spell{at: now, units: 1, region: i})
			}
			if now%int64(ExchangeEvery) == 0 && spent[i] > 0 {
				told[i] = append(told[i], word{now + far.delay, spent[i]})
				spent[i] = 0
			}
		}
	}
	return admitted, denied
}

// TestALooserScopeAdmitsThriceTheLimit is why there is none:
// go test ./sync -v -run LooserScope
func TestALooserScopeAdmitsThriceTheLimit(t *testing.T) {
	for _, l := range []bucket.Limit{perMinute(bucket.SlidingLog), perSecond(bucket.SlidingLog), perMinute(bucket.TokenBucket), perSecond(bucket.TokenBucket)} {
		every := max(4*ms, int64(l.Per)/500)
		all, _ := looser(l, func(int) bool { return true }, every, 5*int64(l.Per))
		most := mostIn(all, int64(l.Per))
		lone, denied := looser(l, func(region int) bool { return region == 0 }, every, int64(l.Per))
		t.Logf("%v %d per %v: %.2f of the limit in its worst window, %.2f over five; alone %d units, denied %d times", l.Algorithm, l.Rate, l.Per,
			float64(most)/float64(l.Rate), float64(len(all))/float64(5*l.Rate), len(lone), denied)
		if l.Algorithm == bucket.SlidingLog && most < 2*l.Rate {
			t.Errorf("%d of %d: then it would be worth having", most, l.Rate)
		}
	}
}
