package rules

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/weir-go/weir/internal/loglimit"
)

const (
	poll     = 5 * time.Second
	quiet    = 50 * time.Millisecond // time without an event before a changed file is read
	patience = time.Second           // maximum time for which events can delay the reading
)

// fileSource reads the rules from a file, or from a directory of fragments. It watches the directory for changes:
// the directory of the file, or the directory of the fragments.
type fileSource struct {
	path  string
	every time.Duration
	log   *slog.Logger

	dir        string                 // the directory whose events are watched
	isRelevant func(name string) bool // whether an event of this name in dir may be a change
	readText   func(path string) ([]byte, error)

	failed    string        // text of the error of the last reading; empty if the last reading succeeded
	unwatched loglimit.Line // limit of the log lines about events
}

// newFileSource returns a source of a file. It watches the directory instead of the file, because the file is
// replaced by a rename. In a ConfigMap, the symlink ..data, which leads to the file, is replaced instead.
func newFileSource(path string, every time.Duration, log *slog.Logger) *fileSource {
	return &fileSource{
		path: path, every: cmp.Or(every, poll), log: cmp.Or(log, slog.Default()),
		dir:        filepath.Dir(path),
		isRelevant: func(name string) bool { return name == filepath.Base(path) || strings.HasPrefix(name, "..") },
		readText:   func(path string) ([]byte, error) { return readFile(path, 0) },
	}
}

func (s *fileSource) Name() string { return s.path }

// Next reads the text at once in the first call. Otherwise it reads the text after events, and
// periodically, because events may be lost: on network file systems, or if the target of a symlink
// changes in a different directory. It returns each error once, and then waits for a change.
func (s *fileSource) Next(ctx context.Context, known string) (Text, error) {
	if known == "" && s.failed == "" {
		text, err, _ := s.read(known)
		return text, err
	}
	var events <-chan fsnotify.Event
	var errs <-chan error
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer watcher.Close()
		events, errs = watcher.Events, watcher.Errors
		err = watcher.Add(s.dir)
	}
	if err != nil {
		s.logUnwatched(err)
	}
	poll := time.NewTicker(s.every)
	defer poll.Stop()
	due := time.NewTimer(quiet) // for changes before the watch began
	defer due.Stop()
	var latest time.Time // latest time of the next read; zero if no read is due
	for {
		isRead := false
		select {
		case <-ctx.Done():
			return Text{}, ctx.Err()
		case e := <-events:
			if !s.isRelevant(filepath.Base(e.Name)) {
				continue
			}
			now := time.Now()
			if latest.IsZero() {
				latest = now.Add(patience)
			}
			due.Reset(min(quiet, latest.Sub(now)))
		case err := <-errs:
			s.logUnwatched(err)
		case <-due.C:
			latest, isRead = time.Time{}, true
		case <-poll.C:
			if watcher != nil {
				_ = watcher.Add(s.dir) // the directory may have been replaced; if it does not exist, the read reports this
			}
			isRead = latest.IsZero() // otherwise the file is being written
		}
		if !isRead {
			continue
		}
		if text, err, isNew := s.read(known); isNew {
			return text, err
		}
	}
}

// read reads the text, and reports whether the result is new: a text with another version than the known
// one, or an error that differs from the last error.
func (s *fileSource) read(known string) (text Text, err error, isNew bool) {
	bytes, err := s.readText(s.path)
	if err != nil {
		isNew, s.failed = err.Error() != s.failed, err.Error()
		return Text{}, err, isNew
	}
	s.failed = ""
	text = Text{s.path, bytes, hashOf(bytes)}
	return text, nil, text.Version != known
}

func (s *fileSource) logUnwatched(err error) {
	if unlogged, due := s.unwatched.Due(time.Now()); due {
		s.log.Warn("cannot watch the directory of the rules; polling it", "path", s.path, "every", s.every.String(), "error", err, "unlogged", unlogged)
	}
}
