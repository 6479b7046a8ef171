package env

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// maxErrands is the maximum number of errands that run at a time. Requests of other nodes that need
// a further errand are handed back to the asking node, which asks another member, or decides within
// its own share.
const maxErrands = 4096

// Life owns the goroutines of a node: tasks, which run until the node is closed, and errands,
// which end by themselves. Close stops both and waits for them, so that no goroutine of the node
// runs after Close has returned. The zero Life has not begun.
type Life struct {
	ended   atomic.Bool
	ctx     context.Context
	end     context.CancelFunc
	tasks   sync.WaitGroup
	errands errgroup.Group // the errands that run, at most maxErrands
	closer  sync.Once
	senders slots // the errands on behalf of senders
}

// Begin begins the life. It must be called first.
func (l *Life) Begin() {
	l.ctx, l.end = context.WithCancel(context.Background())
	l.errands.SetLimit(maxErrands)
}

// Context returns a context that ends with the life.
func (l *Life) Context() context.Context { return l.ctx }

// Done returns a channel that is closed when the life ends.
func (l *Life) Done() <-chan struct{} { return l.ctx.Done() }

// Ended reports whether the life has ended.
func (l *Life) Ended() bool { return l.ended.Load() }

// Go runs a task in a goroutine. The task must return once Done is closed. After the life has
// ended, only a task may start a task.
func (l *Life) Go(task func()) { l.tasks.Go(task) }

// Repeat runs a task that calls f: at first after the duration first, and then after the duration
// that the last call has returned. A signal on wake, which may be nil, causes an additional
// call, with woken set. If f returns 0 in that call, the time of the next call stays the same.
// If f returns 0 in another call, only signals on wake cause further calls.
func (l *Life) Repeat(first time.Duration, wake <-chan struct{}, f func(woken bool) (next time.Duration)) {
	l.Go(func() {
		tick := time.NewTimer(first)
		defer tick.Stop()
		for {
			woken := false
			select {
			case <-tick.C:
			case <-wake:
				woken = true
			case <-l.Done():
				return
			}
			if next := f(woken); next > 0 {
				tick.Reset(next)
			}
		}
	})
}

// Sleep waits for d, and then returns nil. It returns an error early if ctx or the life ends, and at once
// if the deadline of ctx is before the end of d. The error is ErrClosed or that of ctx.
func (l *Life) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return context.DeadlineExceeded
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-l.Done():
		return ErrClosed
	}
}

// Try runs an errand in a goroutine. The errand must return soon after its context has ended. Try
// returns false, without a call of errand, if too many errands run, or if the life has ended.
func (l *Life) Try(errand func(context.Context)) bool {
	return !l.ended.Load() && l.errands.TryGo(func() error {
		errand(l.ctx)
		return nil
	})
}

// TryFor is Try on behalf of a sender. It also returns false if too many errands run for this
// sender, or for all senders together.
func (l *Life) TryFor(from Sender, errand func(context.Context)) bool {
	if !l.senders.acquire(from) {
		return false
	}
	started := l.Try(func(ctx context.Context) {
		defer l.senders.release(from)
		errand(ctx)
	})
	if !started {
		l.senders.release(from)
	}
	return started
}

// Close ends the life, calls stop, which must unblock the tasks, and waits for all tasks and
// errands. It returns the error of stop. A second call does nothing and returns nil.
func (l *Life) Close(stop func() error) (err error) {
	l.closer.Do(func() {
		l.ended.Store(true)
		l.end()
		err = stop()
		l.tasks.Wait()       // after that, only errands start errands
		_ = l.errands.Wait() // errands return no errors
	})
	return err
}
