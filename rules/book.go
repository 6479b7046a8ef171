package rules

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/loglimit"
)

// Book has the current rules. A Book is safe for concurrent use, until Close.
type Book struct {
	node   *weir.Node
	values values
	log    *slog.Logger
	source Source // nil for a Static Book
	cache  string // BookOptions.Cache
	now    func() time.Time

	// Only swap replaces the current Snapshot. The caller of swap holds mu, and each Snapshot has a
	// higher serial than the previous Snapshot. Changes of the text and of the published values
	// both call swap: a Snapshot that is stored without mu could undo the other change.
	current atomic.Pointer[Snapshot]

	mu        sync.Mutex // protects changes of current, and the fields from stats to changed
	stats     BookStats
	seen      string                       // hash of the text of the source that was last read
	seenErr   error                        // the reason why the text of seen was refused; nil if it was not refused
	accepted  string                       // hash of the text of the source that was last put in force
	revision  uint64                       // revision of the published values
	records   map[string]record            // keyed by the name of the published value
	nextPast  time.Time                    // time at which the next published value ends, or a time window opens or closes; zero if there is none
	swapped   time.Time                    // time of the last swap, by the wall clock
	openTimes []string                     // names of the time windows that are open
	changes   []Adaptation                 // the last changes of factors, at most maxChanges
	changed   map[string]map[string]uint64 // number of changes of factors, by rule and reason

	blocked [blockKinds]atomic.Uint64 // requests that Blocks refused

	texts textState // about published texts

	unread, unfit, unadopted, rescaled loglimit.Line // limits of the log lines about published values and factors

	adapting, raising loop // loops that work while the current Snapshot has rules with Adapt or Raise

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
	Poll   time.Duration // interval at which Open reads the file even if no event reports a change; 5 s if zero

	// Cache is a file, of mode 0600, in which the Book keeps the last text from its source that was in force. A
	// second file beside it has the last published text. A Book starts with the text of the cache if the first text
	// of the source is invalid or has a lower version, or cannot be read within 5 s. Each Book needs its own file. If
	// Cache is empty, there is no cache.
	Cache string
}

const (
	pace      = 200 * time.Millisecond // minimum time between two reads of the published values by follow
	clockLook = time.Second            // maximum time between two looks at the clock, which may step, while an end or a time window is awaited
)

// Open reads the file, and reads it again whenever it changes, until Close. The error is
// weir.ErrInvalid for a nil node or a negative Poll, the error of a ctx that is done, or the error of
// the first reading, unless the Cache has a text. If the file is later removed, unreadable or invalid,
// the last valid version stays in force, and the error is logged and reported in Stats.
//
// The path must lead to a regular file, directly or by links. Other files are refused, because
// they may be endless, or block the reader.
//
// The best way to change a file is to rename a new file over it, which is how the symlink of a
// ConfigMap changes. A file that is written in place is read once it has not changed for 50 ms, at
// most 1 s after the first change, or at the next poll if the system reports no changes.
func Open(ctx context.Context, node *weir.Node, path string, o BookOptions) (*Book, error) {
	if o.Poll < 0 {
		return nil, fmt.Errorf("%w BookOptions.Poll: %v: use more than 0, or 0 for %v", weir.ErrInvalid, o.Poll, poll)
	}
	source := newFileSource(path, o.Poll, o.Logger)
	o.Poll = 0
	return OpenSource(ctx, node, source, o)
}

// Static returns a Book of a Set that has no source. Replace and published texts change its Set. Overrides
// have their usual effect. The error is weir.ErrInvalid for a nil node or Set, or an error of the node.
func Static(node *weir.Node, set *Set) (*Book, error) {
	if err := cmp.Or(checkNode("Static", node), checkSet("Static", set)); err != nil {
		return nil, err
	}
	b := newBook(node, node, nil)
	if err := b.enforce(set); err != nil {
		return nil, err
	}
	b.start(func(context.Context) {})
	return b, nil
}

// checkNode returns an error that has the name of a function if node is nil.
func checkNode(name string, node *weir.Node) error {
	if node == nil {
		return fmt.Errorf("%w %s: the node is nil: pass a Node that was started", weir.ErrInvalid, name)
	}
	return nil
}

// checkSet returns an error that has the name of a function if set is nil.
func checkSet(name string, set *Set) error {
	if set == nil {
		return fmt.Errorf("%w %s: the Set is nil: use the Set that Parse returned", weir.ErrInvalid, name)
	}
	return nil
}

func newBook(node *weir.Node, v values, log *slog.Logger) *Book {
	log = cmp.Or(log, slog.Default())
	return &Book{node: node, values: v, log: log, now: time.Now, changed: make(map[string]map[string]uint64), adapting: make(loop, 1), raising: make(loop, 1)}
}

func (b *Book) start(watch func(context.Context)) {
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	b.stopped.Go(func() { watch(ctx) })
	b.stopped.Go(func() { b.follow(ctx) })
	b.stopped.Go(func() { b.raising.run(ctx, seekEvery, b.seekHotKeys) })
	b.stopped.Go(func() { b.adapting.run(ctx, adaptEvery, newAdapter(b).run) })
}

// follow reads the published values after each change, at the end of each value and when a time window
// opens or closes, until ctx is done.
func (b *Book) follow(ctx context.Context) {
	for pause := pace; ; {
		select { // a read returns all values, and many may change at once
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		b.refresh()
		b.adopt()
		b.mu.Lock()
		changed, ends := b.values.PublishedAfter(b.revision), b.nextPast
		b.mu.Unlock()
		var due <-chan time.Time
		if !ends.IsZero() {
			due = time.After(min(max(pace, ends.Sub(b.now())), clockLook))
		}
		select {
		case <-ctx.Done():
			return
		case <-due:
			pause = 0
		case <-changed:
			pause = pace
		}
	}
}

// Current returns the current Snapshot.
func (b *Book) Current() *Snapshot { return b.current.Load() }

// Replace puts a Set in force, like a new text of the source. The Set stays in force until the next new text.
// Replace changes nothing and returns an error if the Set is nil, if its version is lower than the version in
// force, if a limit has a new algorithm at the same version, if a published text with the same version and
// other bytes is in force, or if the node refuses a limit.
func (b *Book) Replace(set *Set) error {
	if err := checkSet("Book.Replace", set); err != nil {
		return err
	}
	return b.enforce(set)
}

// Close stops watching the source and the published values, and closes the source. The last version stays
// in force.
func (b *Book) Close() error {
	b.stop()
	b.stopped.Wait()
	return b.closeSource()
}

// BookStats describes the state of a Book.
type BookStats struct {
	Source    string    // name of the source, such as the path of the file; empty for a Static Book
	Version   uint64    // version of the rules in force
	Hash      string    // first 12 hexadecimal digits of the SHA-256 of the text in force
	Serial    uint64    // serial of the current Snapshot
	LoadedAt  time.Time // time at which the version in force was loaded
	Loads     uint64    // number of texts that were put in force
	Refused   uint64    // number of texts that were refused; texts that could not be read are not counted
	LastError error     // the reason why the present text of the source was refused, or could not be read; nil if there is none
	Missing   bool      // the source has no text, for example because the file does not exist; the last valid version is in force
	Rules     int
	Limits    int
	Overrides int
	Switches  int
	Blocks    int               // Blocks of the file and of operators, also those that have ended and are not yet deleted
	Blocked   map[string]uint64 // requests that Blocks refused, by BlockKind, since the Book was made
	Warnings  map[string]uint64 // requests that were warned, by rule, for each rule with warnings

	Suggestions   int                          // Suggestions for hot keys
	Factors       map[string]float64           // factor of each rule with Adapt
	FactorChanges map[string]map[string]uint64 // changes of the factor that this node has seen, by rule and reason

	Published   *PublishedText // the text in force, if an operator published it; nil otherwise
	RefusedText *PublishedText // a published text that is not in force although its version is not lower, and the reason; nil if there is none
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
	if r := s.RefusedText; r != nil && r.Version < now.version {
		s.RefusedText = nil
	}
	s.Blocks = now.Set.countBlocks() + len(b.Blocks())
	s.Blocked = make(map[string]uint64, blockKinds)
	for kind := range blockKinds {
		s.Blocked[kind.String()] = b.blocked[kind].Load()
	}
	s.Warnings = make(map[string]uint64, len(now.warnings))
	for rule, n := range now.warnings {
		s.Warnings[rule] = n.Load()
	}
	b.factorStats(&s, now)
	s.Suggestions = len(b.Suggestions())
	return s
}
