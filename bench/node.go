package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir"
)

// memberWait bounds all that a member waits for.
const memberWait = 3 * time.Minute

// serving is how many members serve, as a node sees it.
func serving(n *weir.Node) int {
	return len(slices.DeleteFunc(n.Members(), func(m weir.Member) bool { return m.State != weir.Serving }))
}

// untilExact waits until a hundred keys in a row are decided by those with authority.
func untilExact(l *weir.Limiter, within time.Duration) error {
	return untilExactOf(l, keysThat(100, anyKey), within)
}

// untilExactOf waits until these keys are decided, one after the other, by those with
// authority.
func untilExactOf(l *weir.Limiter, keys []string, within time.Duration) error {
	for begun := time.Now(); time.Since(begun) < within; time.Sleep(time.Millisecond) {
		if !slices.ContainsFunc(keys, func(key string) bool {
			d, _ := l.Peek(context.Background(), key)
			return !byAuthority(d.Source)
		}) {
			return nil
		}
	}
	return fmt.Errorf("bench: checks are not exact %v after the load", within)
}

// byAuthority reports whether a decision is the owner's: now, by a denial of it that is
// remembered, or of what it has lent.
func byAuthority(s weir.Source) bool {
	return s == weir.Owner || s == weir.Forwarded || s == weir.Relayed || s == weir.Pushback || s == weir.Leased
}
