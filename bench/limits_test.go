package main

import (
	"time"

	"github.com/weir-go/weir"
)

// The limits admit everything: a denial stops halfway in some limiters, and a
// count that recovers between two checks of its key would be forgotten.
const (
	hourlyRate = 1_000
	burst      = 500_000_000
	window     = time.Hour
	perWindow  = 1_000_000_000_000

	// A SlidingLog grants at most 100,000 units, so it has a short window.
	logRate   = 100_000
	logWindow = 5 * time.Millisecond
)

var algorithms = []struct {
	name  string
	limit weir.Limit
}{
	{"token_bucket", weir.Limit{Name: "api", Algorithm: weir.TokenBucket, Rate: hourlyRate, Per: time.Hour, Burst: burst}},
	{"leaky_bucket", weir.Limit{Name: "api", Algorithm: weir.LeakyBucket, Rate: hourlyRate, Per: time.Hour, Burst: burst}},
	{"sliding_window", weir.Limit{Name: "api", Algorithm: weir.SlidingWindow, Rate: perWindow, Per: window}},
	{"fixed_window", weir.Limit{Name: "api", Algorithm: weir.FixedWindow, Rate: perWindow, Per: window}},
	{"sliding_log", weir.Limit{Name: "api", Algorithm: weir.SlidingLog, Rate: logRate, Per: logWindow}},
}

// limitOf is the limit of an algorithm of that name.
func limitOf(name string) weir.Limit {
	for _, a := range algorithms {
		if a.name == name {
			return a.limit
		}
	}
	panic("bench: no algorithm " + name)
}
