package rules

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watch reloads the file after events, and periodically, because events may be lost: on network
// file systems, or if the target of a symlink changes in a different directory.
//
// It watches the directory instead of the file, because the file is replaced by a rename. In a
// ConfigMap, the symlink ..data, which leads to the file, is replaced instead.
func (b *Book) watch(ctx context.Context, every time.Duration) {
	dir := filepath.Dir(b.path)
	var events <-chan fsnotify.Event
	var errs <-chan error
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer watcher.Close()
		events, errs = watcher.Events, watcher.Errors
		err = watcher.Add(dir)
	}
	if err != nil {
		b.log.Warn("cannot watch the directory of the rules file; polling it", "path", b.path, "every", every.String(), "error", err)
	}
	poll := time.NewTicker(every)
	defer poll.Stop()
	due := time.NewTimer(quiet) // for changes before the watch began
	defer due.Stop()
	var latest time.Time // latest time of the next read; zero if no read is due
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			if name := filepath.Base(e.Name); name != filepath.Base(b.path) && !strings.HasPrefix(name, "..") {
				continue
			}
			now := time.Now()
			if latest.IsZero() {
				latest = now.Add(patience)
			}
			due.Reset(min(quiet, latest.Sub(now)))
		case err, ok := <-errs:
			if !ok {
				errs = nil
				continue
			}
			if unlogged, due := b.unwatched.Due(time.Now()); due {
				b.log.Warn("cannot watch the directory of the rules file; polling it", "path", b.path, "every", every.String(), "error", err, "unlogged", unlogged)
			}
		case <-due.C:
			latest = time.Time{}
			b.reload()
		case <-poll.C:
			if watcher != nil {
				_ = watcher.Add(dir) // the directory may have been replaced; if it does not exist, the poll reports this
			}
			if latest.IsZero() { // otherwise the file is being written
				b.reload()
			}
		}
	}
}
