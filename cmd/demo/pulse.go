package main

import (
	"context"
	"sync"
	"time"
)

// pulse notes when this machine stood still: when it woke a sleeper much too
// late. What takes long for that reason alone is nobody's stall.
type pulse struct {
	mu    sync.Mutex
	still []span // Unix nanoseconds
}

const (
	pulseInterval = 10 * time.Millisecond
	// pulseSlack is how late a sleeper may wake.
	pulseSlack = 20 * time.Millisecond
)

// beat runs until ctx is done.
func (p *pulse) beat(ctx context.Context) {
	tick := time.NewTimer(pulseInterval)
	defer tick.Stop()
	for {
		slept := time.Now()
		tick.Reset(pulseInterval)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if late := time.Since(slept) - pulseInterval; late > pulseSlack {
			now := time.Now().UnixNano()
			p.mu.Lock()
			p.still = append(p.still, span{now - int64(late), now})
			p.mu.Unlock()
		}
	}
}

// within is for how much of the time between two moments the machine stood still.
func (p *pulse) within(from, to int64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := int64(0)
	for _, s := range p.still {
		sum += max(0, min(s.to, to)-max(s.from, from))
	}
	return time.Duration(sum)
}

// longest is how long the machine stood still at most, but for what was meant to
// keep it busy.
func (p *pulse) longest(busy ...span) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := int64(0)
	for _, s := range p.still {
		if !near(busy, s) {
			most = max(most, s.to-s.from)
		}
	}
	return time.Duration(most)
}
