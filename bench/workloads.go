package main

import (
	"math/rand/v2"
	"time"
)

// workload is what is asked of every contender alike.
type workload struct {
	name string
	says string // what it is, for the table's readers
	keys int    // the most asked for come first
	// nodes is in how many processes the callers are.
	nodes int
	quota quota
	// draw makes a source of indexes of keys.
	draw func(*rand.Rand) func() int
	// fill is how often the key of an index is asked for before anything is measured.
	fill func(i int) int
}

const (
	hottest  = 100 // the part of the keys that are hot, inverse
	zipfKeys = 100_000
)

// workloads are in the table's order. Where a limit is meant to deny, the callers reach
// it in a run of a second; the others admit all that is asked in a run of some seconds.
// An interval is so long that what a bucket regains in a run is a unit or two, and the
// windows outlast it: so all algorithms grant the same, and the oracle is exact. There are
// one in part of the keys, so that tests are quick: it is 1 else.
func workloads(part int) []workload {
	attackers, others, gateway := 1000/part, 100_000/part, 100_000/part
	return []workload{
		{
			name: "hot", says: "one key, and all is admitted", keys: 1, nodes: 1,
			quota: quota{500_000_000, 50 * time.Millisecond},
			draw:  func(*rand.Rand) func() int { return func() int { return 0 } },
			fill:  once,
		},
		{
			name: "hot-4", says: "one key on four nodes, and all is admitted", keys: 1, nodes: 4,
			quota: quota{500_000_000, 50 * time.Millisecond},
			draw:  func(*rand.Rand) func() int { return func() int { return 0 } },
			fill:  once,
		},
		{
			name: "uniform", says: "a million keys, each as likely, and all is admitted", keys: million / part, nodes: 1,
			quota: quota{10_000, 3600 * time.Millisecond},
			draw:  uniformOf(million / part),
			fill:  once,
		},
		{
			name: "zipf", says: "100,000 keys by Zipf's law with s = 1.1, on four nodes, 1,000 units of a key", keys: zipfKeys / part, nodes: 4,
			quota: quota{1000, 3600 * time.Millisecond},
			draw:  zipfOf(uint64(zipfKeys / part)),
			fill:  never,
		},
		{
			name: "flood", says: "19 of 20 checks are of 1,000 keys that have nothing left, the others of 100,000 that have", keys: attackers + others, nodes: 1,
			quota: quota{100, 36 * time.Second},
			draw: func(r *rand.Rand) func() int {
				return func() int {
					if r.IntN(20) > 0 {
						return r.IntN(attackers)
					}
					return attackers + r.IntN(others)
				}
			},
			fill: func(i int) int {
				if i < attackers {
					return 101 // one is denied
				}
				return 0
			},
		},
		{
			name: "gateway", says: "100,000 keys of which one in a hundred take half the checks, and all is admitted", keys: gateway, nodes: 1,
			quota: quota{100_000, 360 * time.Millisecond},
			draw: func(r *rand.Rand) func() int {
				return func() int {
					if r.IntN(2) == 0 {
						return r.IntN(gateway / hottest)
					}
					return gateway/hottest + r.IntN(gateway-gateway/hottest)
				}
			},
			fill: once,
		},
	}
}

func once(int) int  { return 1 }
func never(int) int { return 0 }

// uniformOf draws one of n keys, each as likely.
func uniformOf(n int) func(*rand.Rand) func() int {
	return func(r *rand.Rand) func() int { return func() int { return r.IntN(n) } }
}

// zipfOf draws one of n keys with s = 1.1.
func zipfOf(n uint64) func(*rand.Rand) func() int {
	return func(r *rand.Rand) func() int {
		zipf := rand.NewZipf(r, 1.1, 1, n-1)
		return func() int { return int(zipf.Uint64()) }
	}
}
