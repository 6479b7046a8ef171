package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnlyGrowingFigureBreaksPromise(t *testing.T) {
	for name, test := range map[string]struct {
		times  int
		grows  func(i int64, f *Figures)
		broken string // the beginning; none if empty
	}{
		"noise": {60, func(i int64, f *Figures) {
			f.RSS, f.Heap = f.RSS+i%3*mib, f.Heap+i%2*mib
			f.Goroutines, f.Files, f.Keys = f.Goroutines+i%5, f.Files+i%4, f.Keys+2*i
		}, ""},
		"one high figure": {60, func(i int64, f *Figures) {
			if i == 59 {
				*f = Figures{RSS: 900 * mib, Heap: 600 * mib, Goroutines: 6000, Files: 2000, Keys: 9000}
			}
		}, ""},
		"RSS":                   {60, func(i int64, f *Figures) { f.RSS += i * mib }, "RSS: "},
		"heap":                  {60, func(i int64, f *Figures) { f.Heap += i * mib / 8 }, "heap: "},
		"goroutines":            {60, func(i int64, f *Figures) { f.Goroutines += i }, "routines: 110, of gateway 1 in the last third of the rounds; 70 in the first third, at most 78 allowed"},
		"files":                 {60, func(i int64, f *Figures) { f.Files += i }, "files: "},
		"keys":                  {60, func(i int64, f *Figures) { f.Keys += 20 * i }, "keys: "},
		"one file in 15 rounds": {15, func(i int64, f *Figures) { f.Files += i }, "files: "},
		"too few times":         {fewest - 1, func(int64, *Figures) {}, "the figures of gateway 1 were taken 3 times"},
		"not reported":          {60, func(i int64, f *Figures) { f.RSS = max(-1, i-50) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var series []Figures
			for i := range test.times {
				series = append(series, Figures{RSS: 30 * mib, Heap: 6 * mib, Goroutines: 60, Files: 20, Keys: 100})
				test.grows(int64(i), &series[i])
			}
			f := new(findings)
			f.growth(0, series)
			if test.broken == "" {
				require.Empty(t, f.failures())
				return
			}
			require.Len(t, f.failures(), 1)
			require.Contains(t, f.failures()[0], test.broken)
		})
	}
}
