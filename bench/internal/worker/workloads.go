package worker

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Workload is what is asked of every contender alike.
type Workload struct {
	Name string
	Says string // what it is, for the table's readers
	Keys int    // the most asked for come first
	// Nodes is in how many processes the callers are.
	Nodes int
	Quota Quota
	// draw makes a source of indexes of keys.
	draw func(*rand.Rand) func() int
	// fill is how often the key of an index is asked for before anything is measured.
	fill func(i int) int
}

const (
	Hottest  = 100 // the part of the keys that are hot, inverse
	ZipfKeys = 100_000
)

// Workloads are in the table's order. Where a limit is meant to deny, the callers reach
// it in a run of a second; the others admit all that is asked in a run of some seconds.
// An interval is so long that what a bucket regains in a run is a unit or two, and the
// windows outlast it: so all algorithms grant the same, and the oracle is exact. There are
// one in part of the keys, so that tests are quick: it is 1 else.
func Workloads(part int) []Workload {
	attackers, others, gateway := 1000/part, 100_000/part, 100_000/part
	return []Workload{
		{
			Name: "hot", Says: "one key, and all is admitted", Keys: 1, Nodes: 1,
			Quota: Quota{500_000_000, 50 * time.Millisecond},
			draw:  func(*rand.Rand) func() int { return func() int { return 0 } },
			fill:  once,
		},
		{
			Name: "hot-4", Says: "one key on four nodes, and all is admitted", Keys: 1, Nodes: 4,
			Quota: Quota{500_000_000, 50 * time.Millisecond},
			draw:  func(*rand.Rand) func() int { return func() int { return 0 } },
			fill:  once,
		},
		{
			Name: "uniform", Says: "a million keys, each as likely, and all is admitted", Keys: Million / part, Nodes: 1,
			Quota: Quota{10_000, 3600 * time.Millisecond},
			draw:  UniformOf(Million / part),
			fill:  once,
		},
		{
			Name: "zipf", Says: "100,000 keys by Zipf's law with s = 1.1, on four nodes, 1,000 units of a key", Keys: ZipfKeys / part, Nodes: 4,
			Quota: Quota{1000, 3600 * time.Millisecond},
			draw:  ZipfOf(uint64(ZipfKeys / part)),
			fill:  never,
		},
		{
			Name: "flood", Says: "19 of 20 checks are of 1,000 keys that have nothing left, the others of 100,000 that have", Keys: attackers + others, Nodes: 1,
			Quota: Quota{100, 36 * time.Second},
			draw:  partOf(20, attackers, others),
			fill: func(i int) int {
				if i < attackers {
					return 101 // one is denied
				}
				return 0
			},
		},
		{
			Name: "gateway", Says: "100,000 keys of which one in a hundred take half the checks, and all is admitted", Keys: gateway, Nodes: 1,
			Quota: Quota{100_000, 360 * time.Millisecond},
			draw:  partOf(2, gateway/Hottest, gateway-gateway/Hottest),
			fill:  once,
		},
	}
}

func once(int) int  { return 1 }
func never(int) int { return 0 }

// UniformOf draws one of n keys, each as likely.
func UniformOf(n int) func(*rand.Rand) func() int {
	return func(r *rand.Rand) func() int { return func() int { return r.IntN(n) } }
}

// partOf draws one of the first keys, each as likely, but once in n times one of the rest.
func partOf(n, first, rest int) func(*rand.Rand) func() int {
	return func(r *rand.Rand) func() int {
		return func() int {
			if r.IntN(n) > 0 {
				return r.IntN(first)
			}
			return first + r.IntN(rest)
		}
	}
}

// ZipfOf draws one of n keys with s = 1.1.
func ZipfOf(n uint64) func(*rand.Rand) func() int {
	return func(r *rand.Rand) func() int {
		zipf := rand.NewZipf(r, 1.1, 1, n-1)
		return func() int { return int(zipf.Uint64()) }
	}
}

// FindWorkload finds a workload by its name.
func FindWorkload(name string, part int) (Workload, error) {
	for _, w := range Workloads(part) {
		if w.Name == name {
			return w, nil
		}
	}
	return Workload{}, fmt.Errorf("bench: there is no workload %q", name)
}
