package worker

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Workload is a sequence of checks, which is the same for all contenders.
type Workload struct {
	Name  string
	Says  string // a description for readers of the tables
	Keys  int
	Quota Quota
	draw  func(*rand.Rand) int // returns the index of a key
	fill  func(i int) int      // number of checks of the key with index i before the measurement
}

// Workloads returns the workloads in the order of the tables. In flood, fill uses up the
// limits of the attackers before the measurement. The other workloads admit all checks of
// a run of some seconds. In such a run, a bucket regains only a unit or two, and the
// bucket of hot a negligible part of its units. So all contenders grant the same number
// of units. The argument part divides the numbers of keys, and is 1 except in tests.
func Workloads(part int) []Workload {
	uniform, attackers, others := Million/part, 1000/part, 100_000/part
	return []Workload{
		{
			Name: "hot", Says: "one key; all checks are admitted", Keys: 1,
			Quota: Quota{500_000_000, 50 * time.Millisecond},
			draw:  func(*rand.Rand) int { return 0 },
			fill:  fillOnce,
		},
		{
			Name: "uniform", Says: "a million keys, equally likely; all checks are admitted", Keys: uniform,
			Quota: Quota{10_000, 3600 * time.Millisecond},
			draw:  func(r *rand.Rand) int { return r.IntN(uniform) },
			fill:  fillOnce,
		},
		{
			Name: "flood", Says: "19 of 20 checks are for 1,000 keys that are used up, and the rest are for 100,000 other keys", Keys: attackers + others,
			Quota: Quota{100, 36 * time.Second},
			draw: func(r *rand.Rand) int {
				if r.IntN(20) > 0 {
					return r.IntN(attackers)
				}
				return attackers + r.IntN(others)
			},
			fill: func(i int) int {
				if i < attackers {
					return 101 // one check is denied
				}
				return 0
			},
		},
	}
}

func fillOnce(int) int { return 1 }

func findWorkload(name string, part int) (Workload, error) {
	for _, w := range Workloads(part) {
		if w.Name == name {
			return w, nil
		}
	}
	return Workload{}, fmt.Errorf("bench: there is no workload %q", name)
}
