package outbound

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weir-go/weir"
)

// ErrDelayed is the error of a request that is not sent, because its turn would come after its deadline, or
// because too many requests already wait.
type ErrDelayed struct {
	Host  string
	Limit string        // the name of the limit
	Wait  time.Duration // the time until the next turn, as far as it is known
	Err   error         // context.DeadlineExceeded or weir.ErrFull
}

// Error names the host, the limit and the wait.
func (e *ErrDelayed) Error() string {
	remedy := "send it later, or with a later deadline"
	if errors.Is(e.Err, weir.ErrFull) {
		remedy = "send fewer requests, or raise Burst of the limit"
	}
	return fmt.Sprintf("outbound: request to %s was not sent: the next turn of limit %q is in %v: %v: %s", e.Host, e.Limit, e.Wait.Round(time.Millisecond), e.Err, remedy)
}

// Unwrap returns Err.
func (e *ErrDelayed) Unwrap() error { return e.Err }

// Timeout reports whether a deadline is the cause. It lets net/http treat such an error as a timeout.
func (e *ErrDelayed) Timeout() bool { return errors.Is(e.Err, context.DeadlineExceeded) }

// A Turn permits its holder to send one request. The Turn of a request without a limit is nil.
type Turn struct {
	gate  *Gate
	limit *limit
	host  string
	key   string
}

// Wait waits for the turn of a request. Transport and the interceptors of package grpclimit call Wait. For
// another protocol, pass a request with the URL and the Header. The Turn is nil if no limit applies.
//
// Wait returns *ErrDelayed if the turn would come after the deadline of the context of r, if that deadline
// passes, or if too many requests wait. It returns the error of a cancelled context, and weir.ErrClosed if the
// node is closed and the limit is not weir.FailOpen.
func (g *Gate) Wait(r *http.Request) (*Turn, error) {
	l := g.limitOf(r)
	if l == nil {
		return nil, nil
	}
	host := hostOf(r.URL)
	t := &Turn{g, l, host, keyOf(l.limiter, host, g.o.Credential(r))}
	begun := time.Now()
	if err := t.wait(r.Context()); err != nil {
		l.unsent.Add(1)
		return nil, err
	}
	l.requests.Add(1)
	l.waited.Add(uint64(time.Since(begun)))
	return t, nil
}

// wait waits for a turn. The owner may grant a turn some milliseconds before it begins, and the key may be
// paused in that time. In that case, wait waits for the end of the pause, and then for another turn.
func (t *Turn) wait(ctx context.Context) error {
	for {
		err := t.limit.limiter.Wait(ctx, t.key, 1)
		open := errors.Is(err, weir.ErrClosed) && t.limit.limiter.Limit().Partition == weir.FailOpen
		if err != nil && !open {
			return t.delayed(ctx, err)
		}
		rest := t.limit.pauses.findRest(t.key)
		if rest <= 0 {
			return nil
		}
		if err := sleep(ctx, rest); err != nil {
			return t.delayed(ctx, err)
		}
	}
}

// delayed returns the error of a request whose wait failed with err.
func (t *Turn) delayed(ctx context.Context, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, weir.ErrFull) {
		return err
	}
	d, peekErr := t.limit.limiter.Peek(context.WithoutCancel(ctx), t.key)
	wait := d.RetryAfter
	if peekErr == nil && t.limit.limiter.Limit().Algorithm == weir.LeakyBucket {
		wait = max(wait, d.ResetAfter) // after the turns of all waiting requests
	}
	return &ErrDelayed{Host: t.host, Limit: t.limit.name, Wait: max(wait, t.limit.pauses.findRest(t.key)), Err: err}
}

// sleep waits for d. If ctx has an earlier deadline, sleep returns context.DeadlineExceeded at once.
func sleep(ctx context.Context, d time.Duration) error {
	if at, ok := ctx.Deadline(); ok && time.Until(at) < d {
		return context.DeadlineExceeded
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
