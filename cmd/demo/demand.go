package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// drive sends rate requests a second to the regions, as the phase has it, until ctx
// is done.
func (p *planet) drive(ctx context.Context, l *ledger, rate int, seed uint64) {
	pace(ctx, rate, seed, l.miss, func(random *rand.Rand) func() {
		return func() {
			region := p.choose(random)
			f := p.fleets[region]
			to := f.pick(random)
			if to == nil {
				return
			}
			customer, local := random.IntN(customers), random.IntN(localPart) == 0
			path := "/"
			if local {
				path = localPath
			}
			a := ask(f, to, path, clientName(customer))
			a.client = customer
			l.add(region, local, a)
		}
	})
}

// visitor is the user of the small limit.
const visitor = "visitor"

// askAgain is how long somebody waits who was denied a request.
const askAgain = 50 * time.Millisecond

// visit has the user of the small limit come to the lonely region, for all of it at
// once: each request is made again until it is admitted. Then one more is made in
// every region.
func (p *planet) visit(ctx context.Context, l *ledger, after time.Duration) {
	sleep := func(d time.Duration) bool {
		select {
		case <-time.After(d):
			return true
		case <-ctx.Done():
			return false
		}
	}
	if !sleep(after) {
		return
	}
	region := min(lonely, len(p.regions)-1)
	p.say("", "one user asks %s for all %d of a limit of %d a minute at once", p.regions[region], smallRate, smallRate)
	knock := func(region int, seed uint64) (allowed bool) {
		f := p.fleets[region]
		to := f.pick(rand.New(rand.NewPCG(seed, uint64(after))))
		if to == nil {
			return false
		}
		a := ask(f, to, smallPath, visitor)
		l.check(region, false, &a)
		return a.err == nil && a.allowed
	}
	var (
		wait sync.WaitGroup
		mu   sync.Mutex
		last time.Duration
		got  int
	)
	begun := time.Now()
	for i := range smallRate {
		wait.Go(func() {
			for tried := uint64(i); !knock(region, tried); tried++ {
				if time.Since(begun) > 10*smallWithin || !sleep(askAgain) {
					return
				}
			}
			took := time.Since(begun)
			mu.Lock()
			defer mu.Unlock()
			got, last = got+1, max(last, took)
		})
	}
	wait.Wait()
	if ctx.Err() != nil {
		return
	}
	more := 0
	for region := range p.regions {
		if knock(region, 0) {
			more++
		}
	}
	l.visited(got, more, last-l.lateness.Within(begun, begun.Add(last)))
	p.say("", "after %s it has %d, and then %d more in all regions", short(last), got, more)
}
