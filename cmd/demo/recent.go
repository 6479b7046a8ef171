package main

import (
	"sync"
	"time"
)

// recent is what each client was granted within the last per. Its methods are safe for
// concurrent use.
type recent struct {
	per time.Duration

	mu      sync.Mutex
	granted [clients][]int64 // when, in Unix nanoseconds, the oldest first
}

func (r *recent) add(a answer) {
	if a.err != nil || !a.allowed {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.granted[a.client] = append(r.forget(a.client, a.check.to), a.check.to)
}

// miss implements answers: what is not sent is not granted.
func (r *recent) miss(int) {}

// forget drops what is older than per. r.mu is held.
func (r *recent) forget(client int, now int64) []int64 {
	all, old := r.granted[client], 0
	for old < len(all) && all[old] <= now-int64(r.per) {
		old++
	}
	return all[:copy(all, all[old:])]
}

// lately is how many requests of a client were granted within per before now.
func (r *recent) lately(client int, now int64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.granted[client] = r.forget(client, now)
	return len(r.granted[client])
}
