package main

import (
	"time"

	"github.com/weir-go/weir/bench/internal/worker"
)

// verdict is what an oracle makes of counts.
type verdict struct {
	over    int64 // admitted beyond what the limit allows
	denied  int64 // denied though the limit grants it
	granted int64 // what the limit grants of what was asked
}

// judge holds counts to the limit. It sees nothing but how much each key asked, how much
// of that was admitted, and how long it took from before the first ask until after the
// last, in which nothing was used before.
//
// At most q.units + ⌊took/q.interval⌋ may be admitted of a key while took is shorter than
// a window. That is a bucket's bound, Burst + Rate·t/Per. It is a sliding counter's, too,
// wherever its windows begin: with p admitted in one window, another x of which has
// passed may have admitted units − p·(1−x), so that both have units + p·x at most, and
// p ≤ units, x ≤ took/window. A fixed window that begins with the key's first ask admits
// units alone.
//
// At least min(asked, q.units) must be admitted, as each algorithm grants so much to
// a key that has used nothing. What it regains besides, before the last ask, is not asked
// of it: so what is called denied was denied falsely by any clock.
func judge(counts []worker.Count, algorithm string, q worker.Quota, took time.Duration) (v verdict) {
	most := q.Units
	if algorithm != fixed {
		most += int64(took / q.Interval)
	}
	for _, c := range counts {
		grants := min(int64(c.Asked), q.Units)
		v.granted += grants
		v.over += max(0, int64(c.Admitted)-most)
		v.denied += max(0, grants-int64(c.Admitted))
	}
	return v
}

// hereOf is the part of what was asked of these keys that was decided without a hop.
func hereOf(counts []worker.Count) float64 {
	var asked, here float64
	for _, c := range counts {
		asked, here = asked+float64(c.Asked), here+float64(c.Here)
	}
	return here / max(1, asked)
}

// addCounts sums what several processes saw of the same keys.
func addCounts(to, from []worker.Count) []worker.Count {
	if to == nil {
		return from
	}
	for i, c := range from {
		to[i].Asked, to[i].Admitted, to[i].Here = to[i].Asked+c.Asked, to[i].Admitted+c.Admitted, to[i].Here+c.Here
	}
	return to
}
