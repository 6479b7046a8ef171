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

// queue has the request wait for its turn under each rule that has a queue, once
// all other limits have admitted it. A request that gets no turn in time has what
// it spent on them given back.
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
			m.unjudged(s, err)
			return // nothing can be given back
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

// maxAhead is how long a body may be that is read before its request waits.
const maxAhead = 16 << 10

// readAhead reads the body of a request that is to wait, if it is short and has
// been sent without being asked for: over HTTP/1, a server notices only behind the
// body that the client goes away. The handler gets what was read.
func readAhead(r *http.Request) error {
	if r == nil || r.Body == nil || r.Body == http.NoBody || r.ProtoMajor != 1 || r.ContentLength <= 0 || r.ContentLength > maxAhead || r.Header["Expect"] != nil {
		return nil
	}
	text := make([]byte, r.ContentLength)
	n, err := io.ReadFull(r.Body, text)
	if err != nil && !errors.As(err, new(*http.MaxBytesError)) {
		return fmt.Errorf("%w: the body of a queued request ended early: %w", context.Canceled, err)
	}
	r.Body = reread(text[:n], r.Body) // which is at its end, or has the same error again
	return nil
}

// wait waits for a turn, and decides. The error is why it cannot be said.
func (m *Middleware) wait(ctx context.Context, s *scratch, v *Verdict) error {
	err := m.waitForPlace(ctx, s, v)
	switch {
	case ctx.Err() != nil: // the client is gone, and its place free
		return ctx.Err()
	case err != nil && !errors.Is(err, weir.ErrFull) && !errors.Is(err, context.DeadlineExceeded):
		return err
	}
	// Wait tells no Decision. This one is as of now, for a unit more.
	d, peekErr := v.Limiter.Peek(ctx, v.Key)
	if peekErr != nil {
		return peekErr
	}
	if d.Allowed = err == nil; d.Allowed {
		d.RetryAfter = 0
	} else {
		// A new turn comes when those that wait have had theirs.
		d.RetryAfter = max(d.RetryAfter, d.ResetAfter-v.Rule.Queue, time.Millisecond)
		d.ResetAfter = max(d.ResetAfter, d.RetryAfter)
	}
	v.Decision = d
	return nil
}

// waitForPlace waits for a turn, unless as many of the rule as may wait do already.
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
