package env

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// maxErrands bounds what a node does in the background at once. What others ask for
// beyond it is refused, and a check is answered from its asker's budget.
const maxErrands = 4096

// Life owns a node's goroutines: tasks, which go on for as long as the node does, and
// errands, which end by themselves. Close stops both and waits for them, so that nothing of
// a node runs once Close has returned. The zero Life has not begun.
type Life struct {
	ended   atomic.Bool
	ctx     context.Context
	end     context.CancelFunc
	tasks   sync.WaitGroup
	errands errgroup.Group // maxErrands at once
	closer  sync.Once
	senders slots // of errands, those that others have asked for
}

// Begin begins the life.
func (l *Life) Begin() {
	l.ctx, l.end = context.WithCancel(context.Background())
	l.errands.SetLimit(maxErrands)
}

// Context returns what ends with the life.
func (l *Life) Context() context.Context { return l.ctx }

// Done returns what is closed as the life ends.
func (l *Life) Done() <-chan struct{} { return l.ctx.Done() }

// Ended reports whether the life has ended.
func (l *Life) Ended() bool { return l.ended.Load() }

// Go runs a task, which returns once Done is closed. Once the life ends only
// a task starts tasks.
func (l *Life) Go(task func()) { l.tasks.Go(task) }

// Repeat runs a task that calls f, first after the given time, and then each time after the time that f
// has returned. A signal on wake, which may be nil, makes an additional call, for which woken is true. If
// that call returns 0, the time of the next call stays the same.
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

// Try runs an errand in a goroutine, which ends soon after its context. It reports false
// if too many are running already, or the life has ended.
func (l *Life) Try(errand func(context.Context)) bool {
	return !l.ended.Load() && l.errands.TryGo(func() error {
		errand(l.ctx)
		return nil
	})
}

// TryFor runs an errand on behalf of a sender. It reports false if too much goes on for
// that one, or in all.
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

// Close ends the life, calls stop, which closes what tasks wait for, and waits for all
// that was started. It does so once, and then returns nil.
func (l *Life) Close(stop func() error) (err error) {
	l.closer.Do(func() {
		l.ended.Store(true)
		l.end()
		err = stop()
		l.tasks.Wait()       // from here on only errands start errands
		_ = l.errands.Wait() // they return no errors
	})
	return err
}
