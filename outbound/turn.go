package outbound

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weir-go/weir"
)

// ErrDelayed is the error of a request that is not sent, because its turn would come after its deadline,
// or because too many requests wait.
type ErrDelayed struct {
	Host  string
	Limit string        // the name of the limit
	Wait  time.Duration // the time until a turn, as far as it is known
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

// Timeout reports whether a deadline is the cause. net/http and others ask for it.
func (e *ErrDelayed) Timeout() bool { return errors.Is(e.Err, context.DeadlineExceeded) }

// Turn permits to send a request. A nil Turn is that of a request without a limit.
type Turn struct {
	gate  *Gate
	limit *limit
	host  string
	key   string
}

// Wait waits for the turn of a request. Transport and the interceptors of gRPC call it, and callers of
// other protocols may, with a request that has the URL and the Header. The Turn is nil if no limit applies.
//
// The error is *ErrDelayed, also if the deadline of the context of r passes, weir.ErrClosed unless the limit
// is weir.FailOpen, or that of a cancelled context.
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

// wait waits for a turn, which the owner may grant some milliseconds before its time. If the host is paused
// after the owner has granted the turn, wait waits for another turn at the end of the pause.
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

// delayed returns the error of a request. err is the error of its wait.
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

// sleep waits for d. If the deadline of ctx is before, it returns context.DeadlineExceeded at once.
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
