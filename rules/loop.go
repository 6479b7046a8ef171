package rules

import (
	"context"
	"time"
)

// loop repeats work that only some Snapshots need. It does not run while no Snapshot needs the work. A loop has
// room for one value.
type loop chan struct{}

// wake starts the loop if it is needed.
func (l loop) wake(isNeeded bool) {
	if isNeeded {
		select {
		case l <- struct{}{}:
		default:
		}
	}
}

// run calls the function work until ctx is done: first after a call of wake and the time in the argument first,
// and then after the time that work returned.
// After 0, it waits for the next call of wake.
func (l loop) run(ctx context.Context, first time.Duration, work func(context.Context) time.Duration) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l:
		}
		for next := first; next > 0; next = work(ctx) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(next):
			}
		}
	}
}
