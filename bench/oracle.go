package main

import (
	"time"

	"github.com/weir-go/weir/bench/internal/worker"
)

// verdict is the judgment of the oracle, in units.
type verdict struct {
	over    int64 // admitted beyond the limit
	denied  int64 // denied though the limit grants it
	granted int64 // granted by the limit, of the units that were asked for
}

// judge compares counts with the limit. It knows only how much each key asked for, how much was
// admitted, and the time from before the first check until after the last. No key was used before.
//
// A key may be admitted q.Units + ⌊took/q.Interval⌋: the bound of a bucket, Burst + Rate·t/Per.
// It must be admitted min(asked, q.Units), because a bucket that has not been used grants that. The
// units that a bucket regains meanwhile need not be admitted: so a unit that counts as denied was
// denied falsely by any clock.
func judge(counts []worker.Count, q worker.Quota, took time.Duration) (v verdict) {
	most := q.Units + int64(took/q.Interval)
	for _, c := range counts {
		grants := min(int64(c.Asked), q.Units)
		v.granted += grants
		v.over += max(0, int64(c.Admitted)-most)
		v.denied += max(0, grants-int64(c.Admitted))
	}
	return v
}
