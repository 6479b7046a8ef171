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

// Book has the current rules. A Book is safe for concurrent use, until Close.
type Book struct {
	node   *weir.Node
	values values
	log    *slog.Logger
	path   string // empty for a Static Book
	now    func() time.Time

	// Only swap replaces the current Snapshot. The caller of swap holds mu, and each Snapshot has a
	// higher serial than the previous Snapshot. Changes of the file and of the published values
	// both call swap: a Snapshot that is stored without mu could undo the other change.
	current atomic.Pointer[Snapshot]

	mu        sync.Mutex // protects changes of current, and the fields below
	stats     BookStats
	seen      string            // hash of the text that was last read; empty if the last read failed
	revision  uint64            // revision of the published values
	records   map[string]record // by the name of the published value
	nextPast  time.Time         // time of the next end of a published value, or change of a time window; zero if there is none
	swapped   time.Time         // time of the last swap, by the wall clock
	openTimes []string          // names of the time windows that are open

	blocked [blockKinds]atomic.Uint64 // requests that Blocks refused

	unread, unfit, unwatched loglimit.Line // limits of log lines about published values, and about the directory of the file

	stop    context.CancelFunc
	stopped sync.WaitGroup
}

// values are the values that all nodes share.
type values interface {
	Publish(name string, version uint64, value []byte) error
	Published(prefix string) (values []weir.Published, revision uint64)
	PublishedAfter(revision uint64) <-chan struct{}
}

// BookOptions configure a Book. The zero BookOptions are valid.
type BookOptions struct {
	Logger *slog.Logger  // slog.Default if nil. The Logger never receives a key
	Poll   time.Duration // interval at which the file is read even if no event reports a change; 5 s if zero
}

const (
	poll      = 5 * time.Second
	quiet     = 50 * time.Millisecond  // time without an event before a changed file is read
	patience  = time.Second            // maximum time for which events can delay the reading
	pace      = 200 * time.Millisecond // minimum time between two reads of the published values by follow
	clockLook = time.Second            // maximum wait for the next end or time window, because the clock may step
)

// Open reads the file, and reads it again whenever it changes, until Close. The error is that of
// the first reading, weir.ErrInvalid for a negative Poll, or that of a ctx that is already done. If
// the file is later removed, unreadable or invalid, the last valid version stays in force, and the
// error is logged and reported in Stats.
//
// The path must lead to a regular file, directly or by links. Other files are refused, because
// they may be endless, or block the reader.
//
// The best way to change a file is to rename a new file over it, which is how the symlink of a
// ConfigMap changes. A file that is written in place is read once it has not changed for 50 ms, at
// most 1 s after the first change, or at the next poll if the system reports no changes.
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

// Static returns a Book of a Set that is not read from a file and does not change. Overrides
// have their usual effect.
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

// follow reads the published values after each change, at the end of each value and when a time window
// opens or closes, until ctx is done.
func (b *Book) follow(ctx context.Context) {
	pause := time.NewTimer(pace)
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
			pause.Reset(min(max(pace, ends.Sub(b.now())), clockLook))
			due = pause.C
		}
		select {
		case <-ctx.Done():
			return
		case <-due:
			pause.Reset(0)
		case <-changed:
			pause.Reset(pace)
		}
	}
}

// Current returns the current Snapshot.
func (b *Book) Current() *Snapshot { return b.current.Load() }

// Close stops watching the file and the published values. The last version stays current.
func (b *Book) Close() error {
	b.stop()
	b.stopped.Wait()
	return nil
}

// BookStats describes the state of a Book.
type BookStats struct {
	Path      string    // empty for a Static Book
	Version   uint64    // version of the rules in force
	Hash      string    // first 12 hexadecimal digits of the SHA-256 of the text in force
	Serial    uint64    // serial of the current Snapshot
	LoadedAt  time.Time // time at which the version in force was loaded
	Loads     uint64    // number of texts that were loaded
	Refused   uint64    // number of texts that were refused; files that could not be read are not counted
	LastError error     // the reason why the present file is not in force; nil if it is
	Missing   bool      // the file does not exist; the last valid version is in force
	Rules     int
	Limits    int
	Overrides int
	Switches  int
	Blocks    int               // Blocks of the file and of operators, also those that have ended but not yet been deleted
	Blocked   map[string]uint64 // requests that Blocks refused, by BlockKind, since the Book was made
	Warnings  map[string]uint64 // requests that were warned, by rule, for each rule with warnings
}

// Stats returns the state of the Book.
func (b *Book) Stats() BookStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, now := b.stats, b.current.Load()
	s.Version, s.Serial = now.version, now.serial
	s.Rules, s.Limits, s.Overrides, s.Switches = len(now.rules), len(now.limits), 0, len(now.switches)
	for _, of := range now.overrides {
		s.Overrides += len(of)
	}
	s.Blocks = now.Set.countBlocks()
	if now.blocks != nil {
		s.Blocks += len(now.blocks.all)
	}
	s.Blocked = make(map[string]uint64, blockKinds)
	for kind := range blockKinds {
		s.Blocked[kind.String()] = b.blocked[kind].Load()
	}
	s.Warnings = make(map[string]uint64, len(now.warnings))
	for rule, n := range now.warnings {
		s.Warnings[rule] = n.Load()
	}
	return s
}

// reload reads the file, and loads it if it has changed.
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

// load puts a text in force, or returns the reason why it cannot. For the text that was loaded or
// refused last, load does nothing and returns nil. For the text in force, load only deletes the
// error of the last load.
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

// noteText records the hash of a text, and the error of loading it.
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
	s.now, s.blocked = b.now, &b.blocked
	before := new(Snapshot)
	if old != nil {
		before = old
	}
	s.serial, s.switches = before.serial, before.switches
	s.denials, s.warnings = set.newTierDenials(before.denials), set.newWarnings(before.warnings)
	b.swap(*s, b.now())
	b.stats.Hash, b.stats.LoadedAt = hashOf(set.text), b.now()
	b.stats.Loads++
	if b.path != "" {
		b.log.Info("rules are in force", "path", b.path, "version", set.version, "hash", b.stats.Hash, "rules", len(set.rules), "limits", len(set.limits))
	}
	return nil
}

// follows returns an error if s must not replace old. Counts continue under the new rules, and a
// count in use is judged by the numbers of the highest version that was used for it. So a lower
// version would apply only to keys whose counts are not in use. A limit with a new algorithm needs
// a higher version, because counts in use would keep the old algorithm.
func (s *Set) follows(old *Set) error {
	if s.version < old.version {
		return strictyaml.NewError(s.name, s.versionAt.line, s.versionAt.column, fmt.Sprintf(
			"version is %d, below %d, which is in force: counts in use would keep the numbers of version %d; to go back to an older text, give it a version above %d",
			s.version, old.version, old.version, old.version))
	}
	var errs []error
	for _, l := range s.limits {
		was := old.names[l.Name]
		if was != nil && was.base.Algorithm != l.base.Algorithm && s.version == old.version {
			errs = append(errs, strictyaml.NewError(s.name, l.line, l.column, fmt.Sprintf(
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
