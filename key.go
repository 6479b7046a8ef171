package weir

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/wire"
)

// Reset deletes the count of a key on every member, and ends its ban and its pause. An *ErrPartial names the
// members and regions that were not reached. A member that has cached the denial of a banned or paused key may
// deny the key for up to ten seconds more. A region, or the other side of a split, that has the ban or the pause
// denies the key until a reset reaches it. If ctx is cancelled or its deadline passes, the error is that of ctx.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	var a wire.Ask
	if err := l.prepareCounted(ctx, key, 1, &a); err != nil {
		return err
	}
	return l.reset(ctx, &a)
}

// ResetID is like Reset, but names the key by its ID, such as the ID of a BannedKey.
func (l *Limiter) ResetID(ctx context.Context, id [16]byte) error {
	var a wire.Ask
	if err := l.prepareCounted(ctx, "", 1, &a); err != nil {
		return err
	}
	if a.ID = identity.FromBytes(id); wire.IsGlobal(a.ID) != a.Global {
		return fmt.Errorf("%w id: %x is not of a key of limit %q: use an ID that Limiter.ID has returned, or that of a ban", ErrInvalid, id, l.limit.Name)
	}
	return l.reset(ctx, &a)
}

func (l *Limiter) reset(ctx context.Context, a *wire.Ask) error {
	missed, err := l.node.checks.Reset(ctx, a)
	if err == nil && missed != nil {
		err = &ErrPartial{missed}
	}
	return err
}

// Owner returns the member to which the ring assigns the key, and the zero Member if there is
// none (a node that has left a cluster of one) or if the key is above 1 KiB.
func (l *Limiter) Owner(key string) Member {
	if len(key) > wire.MaxKeyBytes {
		return Member{}
	}
	n := l.node
	v := n.env.View()
	if i := v.Owner(l.id(key)); i >= 0 {
		return memberOf(v, i)
	}
	return Member{}
}

// ID returns the ID of a key of this limit, which replaces the key in logs and between nodes. The ID
// is a hash of the name of the limit and the key, keyed by Config.Seed, and reveals neither. The ID
// is the same on all nodes, and zero for a key above 1 KiB.
func (l *Limiter) ID(key string) [16]byte {
	if len(key) > wire.MaxKeyBytes {
		return [16]byte{}
	}
	return identity.Bytes(l.id(key))
}

// id returns the ID of a key, as the other packages use it.
func (l *Limiter) id(key string) bucket.ID {
	id := l.node.identity.ID(l.prefix, key)
	if l.limit.Scope == Global {
		id.Hi |= wire.GlobalIDBit
	}
	return id
}

// ErrPartial is the error of a Reset that did not reach every member of the roster or, for a Global
// limit, every region. The named members may still have a count of the key.
type ErrPartial struct {
	Members []string // sorted names, followed by the other regions that were not reached, as "region NAME"
}

func (e *ErrPartial) Error() string {
	return "weir: reset did not reach " + strconv.Itoa(len(e.Members)) + " member(s): " +
		strings.Join(e.Members, ", ") + "; reset again when they are back, or Forget them"
}

// MaxPause is the longest time for which Limiter.Pause pauses a key.
const MaxPause = wire.LongestPause

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
