package weir

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
)

// MaxPause is the longest time for which Limiter.Pause pauses a key.
const MaxPause = bucket.LongestTimer

// Pause pauses a key of a limit with Limit.Pauses: until d has passed, all checks of the key on all nodes
// are denied with Decision.Paused, and a Wait keeps its place and waits for the end. If a key is paused
// several times, the latest end counts. d is from 1 ms to MaxPause, and rounded up to milliseconds.
// Debits and refunds count as usual. Reset ends the pause.
//
// This node denies the key at once, even if the owner does not answer. Another node denies it from its
// next request to the owner on. If the owner does not answer in time, its stand-in begins the pause, or
// else this node, which is not an error. If ctx is cancelled, the pause may be in force on this node
// only. Units recover during a pause: a full TokenBucket grants its Burst at the end.
func (l *Limiter) Pause(ctx context.Context, key string, d time.Duration) error {
	switch {
	case !l.limit.Pauses:
		return fmt.Errorf("%w Pause: limit %q has no pauses: set Limit.Pauses", ErrInvalid, l.limit.Name)
	case d < time.Millisecond || d > MaxPause:
		return fmt.Errorf("%w Pause: %v: it must be from 1ms to %v", ErrInvalid, d, MaxPause)
	}
	var a wire.Ask
	if err := l.prepare(ctx, key, int64((d+time.Millisecond-1)/time.Millisecond), &a); err != nil {
		return err
	}
	return l.node.checks.Pause(ctx, &a)
}
