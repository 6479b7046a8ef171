package lab

import (
	"context"
	"os"
	"time"
)

// Replace replaces the contents of a file at once: a reader sees the earlier contents or
// the text, and never a part of it. Replace first writes a file of the same name with
// ".new" appended.
func Replace(path string, text []byte) error {
	next := path + ".new"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// Sleep sleeps, and reports whether the sleep ended before ctx was done.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// awaitPause is the pause of Await between two calls of done.
const awaitPause = 5 * time.Millisecond

// Await waits until the function done returns true, and reports whether it did so within the given time
// and before ctx was done.
func Await(ctx context.Context, within time.Duration, done func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for !done() {
		if !Sleep(ctx, awaitPause) {
			return false
		}
	}
	return true
}
