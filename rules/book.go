package rules

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/loglimit"
	"github.com/weir-go/weir/internal/strictyaml"
)

// Book has the rules that hold now. It is safe for concurrent use, and Close
// ends it.
//
// Only swap replaces the current Snapshot, under mu, and each has a serial above the one
// before. A change of the file and one of the overrides both go through it: a Snapshot that
// is stored without mu can undo the other change.
type Book struct {
	node    *weir.Node
	values  values
	log     *slog.Logger
	path    string // empty for a Static one
	now     func() time.Time
	current atomic.Pointer[Snapshot]

	mu       sync.Mutex // over changes, and what follows
	stats    BookStats
	seen     string            // the hash of the text that was looked at last
	revision uint64            // of the published values
	grants   map[string]*grant // by the name that they are published under
	nextPast time.Time         // when the next override ends; zero if none does

	unread, unfit, unwatched loglimit.Line // of lines about overrides, and about the file's directory

	stop    context.CancelFunc
	stopped sync.WaitGroup
}

// values are what all nodes share.
type values interface {
	Publish(name string, version uint64, value []byte) error
	Published(prefix string) (values []weir.Published, revision uint64)
	PublishedAfter(revision uint64) <-chan struct{}
}

// BookOptions say how a Book runs. The zero BookOptions are valid.
type BookOptions struct {
	Logger *slog.Logger  // slog.Default if nil. Never sees a key
	Poll   time.Duration // how often the file is looked at where no event tells of a change; 5 s if zero
}

const (
	poll      = 5 * time.Second
	quiet     = 50 * time.Millisecond  // without an event, before a changed file is read
	patience  = time.Second            // that events may put off the reading
	overrides = 200 * time.Millisecond // the time between two reads of the published values
	clockLook = time.Second            // the longest wait for the end of an override, since the clock may step
)

// Open reads the file, and reads it again whenever it changes, until Close. Its
// error is that of the first reading. Later on what cannot be read, or is wrong,
// or is gone, leaves the last good version in force; it is logged, and in Stats.
// ctx bounds Open alone.
//
// It must be a regular file, or a link to one: what never ends, or waits for somebody to
// write, is refused.
//
// A file is best changed by renaming a new one over it (as a ConfigMap's symlink
// is): one that is written in place is read when it has been quiet for 50 ms.
func Open(ctx context.Context, node *weir.Node, path string, o BookOptions) (*Book, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.Poll < 0 {
		return nil, fmt.Errorf("%w BookOptions.Poll: %v: use more than 0, or 0 for %v", weir.ErrInvalid, o.Poll, poll)
	}
	o.Poll = cmp.Or(o.Poll, poll)
	b := newBook(node, node, o.Logger)
	b.path, b.stats.Path = path, path
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	if err := b.load(text); err != nil {
		return nil, err
	}
	b.start(func(ctx context.Context) { b.watch(ctx, o.Poll) })
	return b, nil
}

// Static is a Book of a Set that is not read from a file and does not change;
// overrides work as ever.
func Static(node *weir.Node, set *Set) (*Book, error) {
	b := newBook(node, node, nil)
	if err := b.enforce(set); err != nil {
		return nil, err
	}
	b.start(func(context.Context) {})
	return b, nil
}

func newBook(node *weir.Node, v values, log *slog.Logger) *Book {
	log = cmp.Or(log, slog.Default())
	return &Book{node: node, values: v, log: log, now: time.Now}
}

func (b *Book) start(watch func(context.Context)) {
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	b.stopped.Go(func() { watch(ctx) })
	b.stopped.Go(func() { b.follow(ctx) })
}

// follow reads the published values after each change and at the end of each override, until ctx is done.
func (b *Book) follow(ctx context.Context) {
	pause := time.NewTimer(overrides)
	defer pause.Stop()
	for {
		select { // a read returns all values, and many may change at once
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		b.refresh()
		b.mu.Lock()
		changed, ends := b.values.PublishedAfter(b.revision), b.nextPast
		b.mu.Unlock()
		var due <-chan time.Time
		if !ends.IsZero() {
			pause.Reset(min(max(overrides, ends.Sub(b.now())), clockLook))
			due = pause.C
		}
		select {
		case <-ctx.Done():
			return
		case <-due:
			pause.Reset(0)
		case <-changed:
			pause.Reset(overrides)
		}
	}
}

// Current is the version that holds now.
func (b *Book) Current() *Snapshot { return b.current.Load() }

// Close stops watching. The last version stays current.
func (b *Book) Close() error {
	b.stop()
	b.stopped.Wait()
	return nil
}

// BookStats is what a Book knows of itself.
type BookStats struct {
	Path      string    // empty for a Static one
	Version   uint64    // the file's
	Hash      string    // of the text in force: the first 12 hexadecimal digits of its SHA-256
	Serial    uint64    // of the current Snapshot
	LoadedAt  time.Time // when the version in force was loaded
	Loads     uint64    // versions that were loaded
	Refused   uint64    // versions that were refused
	LastError error     // why the file as it is now is not in force; nil if it is
	Missing   bool      // the file is not there; the last good version is in force
	Rules     int
	Limits    int
	Overrides int
}

// Stats is what the Book knows of itself.
func (b *Book) Stats() BookStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, now := b.stats, b.current.Load()
	s.Version, s.Serial = now.version, now.serial
	s.Rules, s.Limits, s.Overrides = len(now.rules), len(now.limits), 0
	for _, of := range now.overrides {
		s.Overrides += len(of)
	}
	return s
}

// reload looks at the file, and loads it if it has changed.
func (b *Book) reload() {
	text, err := readFile(b.path)
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.stats.LastError == nil || b.stats.LastError.Error() != err.Error() {
			b.log.Error("the rules file was refused: the last good version stays in force", "path", b.path, "error", err, "hash", b.stats.Hash)
		}
		b.seen = ""
		b.stats.LastError, b.stats.Missing = err, errors.Is(err, fs.ErrNotExist)
		return
	}
	b.load(text)
}

// load puts a text in force, or says why not.
func (b *Book) load(text []byte) error {
	hash := hashOf(text)
	b.mu.Lock()
	seen, inForce := b.seen, b.stats.Hash
	b.mu.Unlock()
	switch {
	case hash == seen:
		return nil
	case hash == inForce:
		b.noteText(hash, nil)
		return nil
	}
	set, err := Parse(b.path, text)
	if err == nil {
		err = b.enforce(set)
	}
	b.noteText(hash, err)
	return err
}

// noteText notes what became of a text.
func (b *Book) noteText(hash string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen, b.stats.Missing, b.stats.LastError = hash, false, err
	if err != nil && b.current.Load() != nil {
		b.stats.Refused++
		b.log.Error("the rules file was refused: the last good version stays in force", "path", b.path, "error", err, "hash", b.stats.Hash)
	}
}

// enforce puts a Set in force.
func (b *Book) enforce(set *Set) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.current.Load()
	if old != nil {
		if err := set.follows(old.Set); err != nil {
			return err
		}
	}
	s, err := newSnapshot(b.node, set)
	if err != nil {
		return err
	}
	if old != nil {
		s.serial = old.serial
	}
	values, revision := b.values.Published(overridePrefix)
	b.revision = revision
	b.swap(*s, values, b.now())
	b.stats.Hash, b.stats.LoadedAt = hashOf(set.text), b.now()
	b.stats.Loads++
	if b.path != "" {
		b.log.Info("rules are in force", "path", b.path, "version", set.version, "hash", b.stats.Hash, "rules", len(set.rules), "limits", len(set.limits))
	}
	return nil
}

// follows returns why a Set may not take the place of another. Counts go on, and a
// count that is in use is judged by the numbers of the highest version that has
// asked for it: so a lower version would be in force for some keys and not for
// others, and a new algorithm needs a higher one.
func (s *Set) follows(old *Set) error {
	if s.version < old.version {
		return strictyaml.At(s.name, s.versionAt.line, s.versionAt.column, fmt.Sprintf(
			"version is %d, below %d, which is in force: counts that are in use would go on by its numbers; to go back to an older text, give it a version above %d",
			s.version, old.version, old.version))
	}
	var errs []error
	for _, l := range s.limits {
		was := old.names[l.Name]
		if was != nil && was.base.Algorithm != l.base.Algorithm && s.version == old.version {
			errs = append(errs, strictyaml.At(s.name, l.line, l.column, fmt.Sprintf(
				"limit %q was a %s and is a %s, at version %d: a new algorithm needs a version above %d",
				l.Name, was.base.Algorithm, l.base.Algorithm, s.version, old.version)))
		}
	}
	return errors.Join(errs...)
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}
