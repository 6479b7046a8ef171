package rules

import (
	"context"
	"log/slog"
	"time"

	"github.com/weir-go/weir"
)

// Snapshot is one version of a Book: the file's Set, and on top of it the node's
// Limiters and the overrides that hold. It never changes: who takes one Snapshot
// for a request sees one version. Its methods allocate nothing.
type Snapshot struct {
	*Set
}

// Limiter is the Limiter that counts a key under a limit of this Snapshot's Set,
// with the numbers of the key's override, or else of its tier.
func (s *Snapshot) Limiter(l *Limit, tier, key string) *weir.Limiter { panic("rules: not yet") }

// Soft is the Limiter of the overrun that the limit's rule allows a key, nil if
// it allows none.
func (s *Snapshot) Soft(l *Limit, tier, key string) *weir.Limiter { panic("rules: not yet") }

// Serial rises by one with each Snapshot of a Book: with a new version of the
// file, and with a change of the overrides.
func (s *Snapshot) Serial() uint64 { panic("rules: not yet") }

// Book has the rules that hold now. It is safe for concurrent use.
type Book struct{}

// BookOptions say how a Book runs. The zero BookOptions are valid.
type BookOptions struct {
	Logger *slog.Logger  // slog.Default if nil. Never sees a key
	Poll   time.Duration // how often the file is looked at where no event tells; 5 s if zero
}

// Open reads the file, and reads it again whenever it changes. Its error is that
// of the first reading; later ones leave the last good version in force, are
// logged, and are in Stats. ctx bounds Open alone.
func Open(ctx context.Context, node *weir.Node, path string, o BookOptions) (*Book, error) {
	panic("rules: not yet")
}

// Static is a Book of a Set that does not come from a file and does not change;
// overrides work as ever.
func Static(node *weir.Node, set *Set) (*Book, error) { panic("rules: not yet") }

// Current is the version that holds now.
func (b *Book) Current() *Snapshot { panic("rules: not yet") }

// Close stops watching. The last version stays current.
func (b *Book) Close() error { panic("rules: not yet") }

// BookStats is what a Book knows of itself.
type BookStats struct {
	Path      string    // empty for a Static one
	Version   uint64    // the file's
	Hash      string    // of the file's text: the first 12 hexadecimal digits of its SHA-256
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
func (b *Book) Stats() BookStats { panic("rules: not yet") }

// Override gives one key of one limit other numbers, on all nodes.
type Override struct {
	Limit string        // its name, see Limit.Name
	ID    [16]byte      // of the key, by weir.Limiter.ID; no key's text is published
	Rate  int64         // units, 1 to 10^12
	Per   time.Duration // the limit's if zero
	Burst int64         // Rate if zero, for the buckets
	Until time.Time     // to the second; for ever if zero
	By    string        // who set it, at most 128 bytes
	At    time.Time     // when it was set, to the second
}

// Override sets the numbers of a key under a limit, on all nodes, in the place of
// what was set before: the last writer wins. o's ID and At are filled in. It holds
// here at once. The error is weir.ErrInvalid for what is wrong with it, or that of
// weir.Node.Publish.
func (b *Book) Override(limit, key string, o Override) error { panic("rules: not yet") }

// Restore takes a key's override back, on all nodes. Without one it does nothing.
func (b *Book) Restore(limit, key string) error { panic("rules: not yet") }

// OverrideOf is a key's override under a limit.
func (b *Book) OverrideOf(limit, key string) (o Override, ok bool) { panic("rules: not yet") }

// Overrides are those that hold now, by limit and ID.
func (b *Book) Overrides() []Override { panic("rules: not yet") }
