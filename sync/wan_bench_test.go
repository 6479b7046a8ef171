package countsync

import (
	"fmt"
	"testing"
)

// BenchmarkBetweenRegions reports the traffic between regions for a key with 1,000 units per
// second. Its times have no meaning:
// go test ./sync -run '^$' -bench BetweenRegions -benchtime 1x
func BenchmarkBetweenRegions(b *testing.B) {
	for _, c := range []struct {
		name  string
		rates [3]int64 // units per second that are asked for in each region
	}{
		{"all ask for 1,300", [3]int64{1300, 1300, 1300}},
		{"1,000, 250 and 250", [3]int64{1000, 250, 250}},
		{"one asks for 1,300", [3]int64{1300, 0, 0}},
		{"one asks for 600", [3]int64{600, 0, 0}},
		{"no asks", [3]int64{}},
	} {
		for _, a := range algorithms {
			b.Run(fmt.Sprintf("%s/%v", c.name, a), func(b *testing.B) {
				const span = 60
				for range b.N {
					w := newGlobe(b, 1, 3, perSecond(a), far)
					w.settle()
					for i, r := range w.regions {
						if c.rates[i] > 0 {
							r.demand(sec/c.rates[i], 1, 1, func() bool { return true })
						}
					}
					w.run(10 * sec)
					w.said = traffic{}
					w.run(span * sec)
					b.ReportMetric(float64(w.said.statements)/span, "statements/s")
					b.ReportMetric(float64(w.said.bytes)/span, "bytes/s")
					b.ReportMetric(0, "ns/op")
				}
			})
		}
	}
}
