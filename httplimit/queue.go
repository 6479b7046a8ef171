package httplimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/weir-go/weir"
)

// queue waits for the turn of the request under each rule that has a queue, after all other
// limits have admitted the request. If there is no turn in time, queue refunds the units of the other
// limits.
func (m *Middleware) queue(ctx context.Context, s *scratch) {
	o := &s.outcome
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		if v.asked != inTurn {
			continue
		}
		err := readAhead(s.http)
		if err == nil {
			begun := time.Now()
			err = m.wait(ctx, s, v)
			o.Waited += time.Since(begun)
		}
		if err == nil && v.Decision.Allowed {
			continue
		}
		switch {
		case errors.Is(err, weir.ErrClosed):
			m.setUndecided(s, err)
			return // a closed node cannot refund units
		case err != nil:
			o.fail(err)
		default:
			o.Status = s.denial()
		}
		if err := s.giveBack(ctx); err != nil {
			m.logUnsettled(v.Decision.Name, err)
		}
		return
	}
}

// maxAhead is the maximum length of a body that is read before its request waits.
const maxAhead = 16 << 10

// readAhead reads the body of a request that will wait, if the body is short and the client
// sends it without waiting for 100 Continue. With HTTP/1, a server only detects that a client
// has left after it has read the body. The handler gets the same body.
func readAhead(r *http.Request) error {
	if r == nil || r.Body == nil || r.Body == http.NoBody || r.ProtoMajor != 1 || r.ContentLength <= 0 || r.ContentLength > maxAhead || r.Header["Expect"] != nil {
		return nil
	}
	text := make([]byte, r.ContentLength)
	n, err := io.ReadFull(r.Body, text)
	if err != nil && !errors.As(err, new(*http.MaxBytesError)) {
		return fmt.Errorf("%w: the body of a queued request ended early: %w", context.Canceled, err)
	}
	r.Body = reread(text[:n], r.Body) // the rest is empty, or returns the same error again
	return nil
}

// wait waits for a turn, and sets the decision, or returns an error if there is no decision.
func (m *Middleware) wait(ctx context.Context, s *scratch, v *Verdict) error {
	err := m.waitForPlace(ctx, s, v)
	switch {
	case ctx.Err() != nil: // the client has left, or the deadline has passed; the place of the request is free
		return ctx.Err()
	case err != nil && !errors.Is(err, weir.ErrFull) && !errors.Is(err, context.DeadlineExceeded):
		return err
	}
	// Wait returns no Decision. Peek returns the Decision that a check of a further unit
	// would get now.
	d, peekErr := v.Limiter.Peek(ctx, v.Key)
	if peekErr != nil {
		return peekErr
	}
	if d.Allowed = err == nil; d.Allowed {
		d.RetryAfter = 0
	} else {
		// There is no new turn before the waiting requests have had their turns.
		d.RetryAfter = max(d.RetryAfter, d.ResetAfter-v.Rule.Queue, time.Millisecond)
		d.ResetAfter = max(d.ResetAfter, d.RetryAfter)
	}
	v.Decision = d
	return nil
}

// waitForPlace waits for a turn, or returns weir.ErrFull if MaxWaiting requests of the rule
// already wait.
func (m *Middleware) waitForPlace(ctx context.Context, s *scratch, v *Verdict) error {
	waiting, ok := m.waiting.Load(v.Rule.Name)
	if !ok {
		waiting, _ = m.waiting.LoadOrStore(v.Rule.Name, semaphore.NewWeighted(int64(m.o.MaxWaiting)))
	}
	places := waiting.(*semaphore.Weighted)
	if !places.TryAcquire(1) {
		return weir.ErrFull
	}
	defer places.Release(1)
	ctx, cancel := context.WithTimeout(ctx, v.Rule.Queue)
	defer cancel()
	if l := v.Limiter.Limit(); l.Algorithm == weir.InFlight {
		if !s.ends {
			return &ErrNoEnd{l.Name}
		}
		if s.ttl > 0 {
			_, err := s.holdFor(ctx, m, v, (*weir.Limiter).WaitHoldFor)
			return err
		}
		h, err := v.Limiter.WaitHold(ctx, v.Key, v.Units)
		s.keep(m, h)
		return err
	}
	return v.Limiter.Wait(ctx, v.Key, v.Units)
}
