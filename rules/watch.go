package rules

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watch reloads the file when something happens to it, and every so often, as
// events get lost: on network file systems, or when what a symlink leads to
// changes in another directory.
//
// The directory is watched, and not the file, which is replaced by its rename or,
// in a ConfigMap, by that of the symlink ..data that leads to it.
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
	due := time.NewTimer(quiet) // for what happened before the watch began
	defer due.Stop()
	var latest time.Time // that the reading may be put off; zero if none is due
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
				_ = watcher.Add(dir) // it may be another one by now; while it is gone, the poll says so
			}
			if latest.IsZero() { // else it is being written
				b.reload()
			}
		}
	}
}
