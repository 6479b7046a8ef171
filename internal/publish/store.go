package publish

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Bounds of published values.
const (
	MaxName   = 256     // maximum size of a name, in bytes
	MaxValue  = 4 << 10 // maximum size of a value, in bytes
	maxValues = 16_384  // maximum number of values that callers may publish
	maxBytes  = 8 << 20 // maximum size of their names and values together, in bytes
	// A store has room for twice as many entries: both sides of a partition may have filled their
	// stores, and tombstones are kept as well.
	maxEntries    = 2 * maxValues
	maxEntryBytes = 2 * maxBytes
	// tombstoneFor is how long a tombstone is kept. A member that was disconnected for longer
	// brings the value back.
	tombstoneFor = 24 * time.Hour
	// maxAhead is the maximum by which a version may be ahead of the time of day in nanoseconds.
	// Versions are bounded like the numbers of resets: no version is above math.MaxUint64, so a
	// value with that version could never be replaced.
	maxAhead = 24 * time.Hour
)

// ErrFull is the error of Put about a value for which there is no room.
var ErrFull = errors.New("there is no room")

// Item is a value under a name, like a weir.Published. An Item without a value is a tombstone: the
// name was withdrawn.
type Item struct {
	Name    string
	Version uint64
	Value   []byte
}

// entry is the value or the tombstone of a name.
type entry struct {
	Item
	since int64 // when a tombstone was created, by the clock of this node; messages contain the age instead
}

func (p *entry) isTombstone() bool { return len(p.Value) == 0 }

// isExpired reports whether a tombstone may be deleted.
func (p *entry) isExpired(now int64) bool {
	return p.isTombstone() && now-p.since >= int64(tombstoneFor)
}

func (p *entry) size() int { return len(p.Name) + len(p.Value) }

// compare orders two entries of the same name. A merge keeps the greater entry, so the order,
// number and path of arrivals do not matter.
func (p *entry) compare(o *entry) int {
	return cmp.Or(cmp.Compare(p.Version, o.Version), bytes.Compare(p.Value, o.Value))
}

// order compares two entries by their priority if there are too many entries: values before
// tombstones, and then by name. The order is the same on all nodes.
func (p *entry) order(o *entry) int {
	if p.isTombstone() != o.isTombstone() {
		if o.isTombstone() {
			return -1
		}
		return 1
	}
	return strings.Compare(p.Name, o.Name)
}

// digests contains a number for each part of a store (digestIndex). If the numbers of a part are equal in two
// stores, the entries in that part are equal.
type digests [256]uint64

// digestIndex returns the index of the digest that includes a name.
func digestIndex(name string) uint8 { return uint8(xxhash.Sum64String(name) >> 56) }

func (p *entry) digest() uint64 {
	var d xxhash.Digest
	d.Reset()
	var head [16]byte
	binary.LittleEndian.PutUint64(head[:], uint64(len(p.Name)))
	binary.LittleEndian.PutUint64(head[8:], p.Version)
	_, _ = d.Write(head[:])
	_, _ = d.WriteString(p.Name)
	_, _ = d.Write(p.Value)
	return d.Sum64()
}

// Stats describes the contents of a Store.
type Stats struct {
	Values     int
	Tombstones int
	Bytes      int    // size of all names and values
	Revision   uint64 // increases with each change
	Dropped    uint64 // number of dropped entries, values and tombstones, for which there was no room; a drop that leaves the store as it was does not count
}

// Store contains all published entries that a node knows. It is a state machine: the inputs are
// entries and the time, and the output is the new entries. The zero Store is empty. A Store is safe
// for concurrent use.
//
// The counters and digests must correspond to the entries in the map all, so only add and remove change
// that map.
type Store struct {
	mu       sync.Mutex
	all      map[string]entry
	digests  digests
	revision uint64
	values   int // number of entries that are not tombstones
	bytes    int // size of all entries
	live     int // size of all values with their names
	dropped  uint64
	changed  chan struct{}            // closed by the next change; nil if no caller waits
	snapshot atomic.Pointer[snapshot] // the present contents; nil until a caller needs them
}

// snapshot is a store at a moment, sorted by name. A snapshot is immutable.
type snapshot struct {
	all      []entry
	revision uint64
	once     sync.Once
	values   any // all values as a []T; nil until Values is called
}

// merge merges entries, and returns the new entries. It leaves out the entries for which accepts
// returns false, and returns the last of them.
func (s *Store) merge(list []entry, now int64, latest uint64) (news []entry, refused *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	timely := make([]entry, 0, len(list))
	for i := range list {
		if s.accepts(&list[i], latest) {
			timely = append(timely, list[i])
		} else {
			refused = &list[i]
		}
	}
	return s.insert(timely, now), refused
}

// latestVersion returns the highest version that is accepted at a time of day, in nanoseconds since
// 1970.
func latestVersion(timeOfDay int64) uint64 {
	return uint64(max(0, timeOfDay)) + uint64(maxAhead)
}

// accepts reports whether the version of an entry is at most latest. The version after that of the
// held entry is always accepted, so that each value can be replaced and deleted, even if a clock
// was set back after the value had arrived.
func (s *Store) accepts(p *entry, latest uint64) bool {
	if p.Version <= latest {
		return true
	}
	held, known := s.all[p.Name]
	return known && p.Version-1 <= held.Version
}

// insert merges entries that accepts has accepted. The caller must hold s.mu.
func (s *Store) insert(list []entry, now int64) (news []entry) {
	digests, revision, dropped := s.digests, s.revision, s.dropped
	for _, p := range list {
		if p.isExpired(now) {
			continue
		}
		held, known := s.all[p.Name]
		if known {
			if p.compare(&held) <= 0 {
				continue
			}
			s.remove(&held)
		}
		s.add(&p)
		news = append(news, p)
	}
	if s.trim() {
		news = slices.DeleteFunc(news, func(p entry) bool {
			held, known := s.all[p.Name]
			return !known || p.compare(&held) != 0
		})
		if s.digests == digests { // there was no room before either
			s.revision, s.dropped = revision, dropped
		}
	}
	s.announce(revision)
	return news
}

func (s *Store) add(p *entry) {
	if s.all == nil {
		s.all = make(map[string]entry)
	}
	s.all[p.Name] = *p
	s.count(p, 1)
}

func (s *Store) remove(p *entry) {
	delete(s.all, p.Name)
	s.count(p, -1)
}

// count updates the counters and digests for an entry that is added (sign 1) or removed (sign -1).
func (s *Store) count(p *entry, sign int) {
	s.digests[digestIndex(p.Name)] ^= p.digest()
	s.bytes += sign * p.size()
	if !p.isTombstone() {
		s.values += sign
		s.live += sign * p.size()
	}
	s.revision++
}

// announce ends the waits of After, and drops the snapshot, if the revision is not the argument before.
// The caller must hold s.mu.
func (s *Store) announce(before uint64) {
	if s.revision == before {
		return
	}
	s.snapshot.Store(nil)
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// After returns a channel that is closed once the revision differs from the given revision.
func (s *Store) After(revision uint64) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.revision != revision {
		past := make(chan struct{}) // other callers wait for the next change
		close(past)
		return past
	}
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// trim drops the entries for which there is no room, the same on all nodes. It reports whether it
// has dropped any.
func (s *Store) trim() bool {
	if len(s.all) <= maxEntries && s.bytes <= maxEntryBytes {
		return false
	}
	ordered := slices.SortedFunc(maps.Values(s.all), func(p, o entry) int { return p.order(&o) })
	for len(ordered) > maxEntries || s.bytes > maxEntryBytes {
		last := len(ordered) - 1
		s.remove(&ordered[last])
		ordered = ordered[:last]
		s.dropped++
	}
	return true
}

// put merges an entry that a caller of this node publishes. Version 0 is the next version.
func (s *Store) put(p entry, timeOfDay, now int64) (news []entry, err error) {
	switch {
	case p.Name == "" || len(p.Name) > MaxName:
		return nil, fmt.Errorf("name: it has %d bytes: use 1 to %d", len(p.Name), MaxName)
	case len(p.Value) > MaxValue:
		return nil, fmt.Errorf("value: %q has %d bytes: use at most %d", p.Name, len(p.Value), MaxValue)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	held, known := s.all[p.Name]
	values, live := s.values, s.live
	if p.Version == 0 {
		p.Version = max(uint64(max(1, timeOfDay)), held.Version+1)
	}
	if latest := latestVersion(timeOfDay); !s.accepts(&p, latest) {
		return nil, fmt.Errorf("version: %d of %q is above %d, a day after the time of day in nanoseconds since 1970: use a lower version, or 0 for the next", p.Version, p.Name, latest)
	}
	if known {
		switch c := p.compare(&held); {
		case c == 0:
			return nil, nil
		case c < 0:
			return nil, fmt.Errorf("version: %d of %q is not above version %d, the present version: use a higher version, or 0 for the next", p.Version, p.Name, held.Version)
		}
	}
	if !p.isTombstone() {
		if known && !held.isTombstone() {
			values, live = values-1, live-held.size()
		}
		if values >= maxValues || live+p.size() > maxBytes {
			return nil, fmt.Errorf("value: %w for %q beside %d values with %d bytes: withdraw some values; the maximum is %d values with %d bytes", ErrFull, p.Name, values, live, maxValues, maxBytes)
		}
	}
	return s.insert([]entry{p}, now), nil
}

// sweep deletes expired tombstones.
func (s *Store) sweep(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == len(s.all) {
		return
	}
	revision := s.revision
	for _, p := range s.all {
		if p.isExpired(now) {
			s.remove(&p)
		}
	}
	s.announce(revision)
}

// current returns the present snapshot of the store.
func (s *Store) current() *snapshot {
	if c := s.snapshot.Load(); c != nil {
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &snapshot{
		all:      slices.SortedFunc(maps.Values(s.all), func(p, o entry) int { return strings.Compare(p.Name, o.Name) }),
		revision: s.revision,
	}
	s.snapshot.Store(c)
	return c
}

// Values returns the values whose names begin with prefix, sorted by name, and the revision of all
// values, which increases with each change. The slice and the bytes are shared between calls. T is
// the caller's type of an Item, and must be the same in all calls.
func Values[T ~struct {
	Name    string
	Version uint64
	Value   []byte
}](s *Store, prefix string) (values []T, revision uint64) {
	c := s.current()
	c.once.Do(func() {
		all := make([]T, 0, len(c.all))
		for i := range c.all {
			if !c.all[i].isTombstone() {
				all = append(all, T(c.all[i].Item))
			}
		}
		c.values = all
	})
	all := c.values.([]T)
	from, _ := slices.BinarySearchFunc(all, prefix, func(p T, prefix string) int { return strings.Compare(Item(p).Name, prefix) })
	rest := all[from:]
	n, _ := slices.BinarySearchFunc(rest, prefix, func(p T, prefix string) int {
		if strings.HasPrefix(Item(p).Name, prefix) {
			return -1
		}
		return 1
	})
	return rest[:n:n], c.revision
}

// entriesAfter returns the entries whose names follow the given name.
func (c *snapshot) entriesAfter(name string) []entry {
	i, found := slices.BinarySearchFunc(c.all, name, func(p entry, name string) int { return strings.Compare(p.Name, name) })
	if found {
		i++
	}
	return c.all[i:]
}

func (s *Store) digestsNow() digests {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.digests
}

// Stats describes the present contents of s.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{s.values, len(s.all) - s.values, s.bytes, s.revision, s.dropped}
}

// Question is a request to another node for the entries that differ.
type Question struct {
	after   string // all names up to this name have been compared
	digests digests
}

// difference is the answer to a Question: the next entries, by name, of the parts that differ.
type difference struct {
	list []entry
	more bool // further names follow the last
}

// findDifference answers a Question of another node, with about as many bytes as the argument most allows,
// and with at least one entry if there is any.
func (s *Store) findDifference(q *Question, most int) (d difference) {
	own := s.digestsNow()
	if own == q.digests {
		return d
	}
	for _, p := range s.current().entriesAfter(q.after) {
		if at := digestIndex(p.Name); own[at] == q.digests[at] {
			continue
		}
		most -= p.encodedSize()
		if d.more = most < 0 && len(d.list) > 0; d.more {
			break
		}
		d.list = append(d.list, p)
	}
	return d
}
