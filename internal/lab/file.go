package lab

import (
	"context"
	"os"
	"time"
)

// Replace puts text into a file at once: a reader sees what was in it before or the text, and
// never a part. A file beside it, of the same name and ".new", is written first.
func Replace(path string, text []byte) error {
	next := path + ".new"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// Sleep sleeps, and reports whether that was over before ctx was done.
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

// awaitPause is how long Await sleeps between two looks.
const awaitPause = 5 * time.Millisecond

// Await waits until done reports true, and reports whether it did before a time had passed and ctx
// was done.
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
