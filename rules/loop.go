package rules

import (
	"context"
	"time"
)

// loop repeats work that only some Snapshots need, and rests while the current Snapshot does not need the work. The
// channel has room for one value, so that a call of wake during the work is not lost.
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

// run waits for a call of wake, and calls the function work after the time first. It calls work again each time
// the duration that work returned has passed. If work returns 0, run waits for the next call of wake. It returns
// once ctx is done.
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
