package publish

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Bounds of what is published.
const (
	MaxName   = 256
	MaxValue  = 4 << 10
	maxValues = 16_384  // values that a caller may publish
	maxBytes  = 8 << 20 // of their names and values
	// A store holds twice as much: both sides of a split may have filled theirs,
	// and what was taken back is remembered.
	maxEntries    = 2 * maxValues
	maxEntryBytes = 2 * maxBytes
	// tombstoneFor is how long what was taken back is remembered: a member that was cut off
	// for longer brings it back.
	tombstoneFor = 24 * time.Hour
	// maxAhead is how far a version may be ahead of the time of day in nanoseconds. Versions
	// are bounded as the numbers of resets are: above the highest number of all there is
	// none, so that a value which had it would hold for good.
	maxAhead = 24 * time.Hour
)

// Item is a value under a name, as a weir.Published has it. One without a value is a
// tombstone: the name was taken back.
type Item struct {
	Name    string
	Version uint64
	Value   []byte
}

// entry is what is known of one name.
type entry struct {
	Item
	since int64 // of a tombstone: when it came to be, by this node's clock; it travels as an age
}

func (p *entry) tombstone() bool { return len(p.Value) == 0 }

// expired reports whether a tombstone has served its time.
func (p *entry) expired(now int64) bool {
	return p.tombstone() && now-p.since >= int64(tombstoneFor)
}

func (p *entry) size() int { return len(p.Name) + len(p.Value) }

// compare orders entries of one name: a merge keeps the greater one, so it does
// not matter in which order, how often or by which way they come.
func (p *entry) compare(o *entry) int {
	return cmp.Or(cmp.Compare(p.Version, o.Version), bytes.Compare(p.Value, o.Value))
}

// order is which entries stay if there are too many: values before tombstones,
// and then by name, the same on all nodes.
func (p *entry) order(o *entry) int {
	if p.tombstone() != o.tombstone() {
		if o.tombstone() {
			return -1
		}
		return 1
	}
	return strings.Compare(p.Name, o.Name)
}

// digests are one number for each part of a store. Two stores that have the same
// number have the same entries there.
type digests [256]uint64

// part is which of them counts a name.
func part(name string) uint8 { return uint8(xxhash.Sum64String(name) >> 56) }

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

// Stats says what a node knows of what was published.
type Stats struct {
	Values     int
	Tombstones int
	Bytes      int // of names and values
	Revision   uint64
	Dropped    uint64 // names that there was no room for
}

// Store is all that is published, as one node knows it. It is a step function: entries and
// the time go in, what was new comes out. The zero Store is empty. It is safe for concurrent
// use.
//
// Each counter and digest is that of the entries in all, so only add and remove change all.
type Store struct {
	mu       sync.Mutex
	all      map[string]entry
	digests  digests
	revision uint64
	values   int // that are no tombstones
	bytes    int // of all
	live     int // bytes of values
	dropped  uint64
	changed  chan struct{}            // closed by the next change; nil if no caller waits for one
	snapshot atomic.Pointer[snapshot] // nil when something has changed
}

// snapshot is a store at one moment, sorted by name. It is immutable.
type snapshot struct {
	all      []entry
	revision uint64
	once     sync.Once
	values   any // []T of Values, once it was called
}

// merge merges entries, and returns those that were news. Those whose version is above
// latest it leaves out, and it returns the last of these.
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

// latestVersion is the highest version that is accepted at a time of day, in nanoseconds
// since 1970.
func latestVersion(timeOfDay int64) uint64 {
	return uint64(max(0, timeOfDay)) + uint64(maxAhead)
}

// accepts reports whether an entry's version is within bounds. The next one above that of
// the entry which is held always is, so that each value can be replaced, and deleted,
// also where a clock was set back after the value had come.
func (s *Store) accepts(p *entry, latest uint64) bool {
	if p.Version <= latest {
		return true
	}
	held, known := s.all[p.Name]
	return known && p.Version-1 <= held.Version
}

// insert requires s.mu.
func (s *Store) insert(list []entry, now int64) (news []entry) {
	digests, revision, dropped := s.digests, s.revision, s.dropped
	for _, p := range list {
		if p.expired(now) {
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

// count changes what is counted of an entry that comes (1) or goes (-1).
func (s *Store) count(p *entry, sign int) {
	s.digests[part(p.Name)] ^= p.digest()
	s.bytes += sign * p.size()
	if !p.tombstone() {
		s.values += sign
		s.live += sign * p.size()
	}
	s.revision++
	s.snapshot.Store(nil)
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// After returns a channel that is closed once the revision is not the given one.
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

// trim drops what there is no room for, the same on all nodes, and reports whether
// that was anything.
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

// put merges what a caller of this node publishes. A version of 0 is the next one.
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
		return nil, fmt.Errorf("version: %d of %q is above %d, a day after the time of day in nanoseconds since 1970: use a lower one, or 0 for the next", p.Version, p.Name, latest)
	}
	if known {
		switch c := p.compare(&held); {
		case c == 0:
			return nil, nil
		case c < 0:
			return nil, fmt.Errorf("version: %d of %q is not above version %d, which holds: use a higher one, or 0 for the next", p.Version, p.Name, held.Version)
		}
	}
	if !p.tombstone() {
		if known && !held.tombstone() {
			values, live = values-1, live-held.size()
		}
		if values >= maxValues || live+p.size() > maxBytes {
			return nil, fmt.Errorf("value: there is no room for %q beside %d values with %d bytes: take some back, there may be %d with %d", p.Name, values, live, maxValues, maxBytes)
		}
	}
	return s.insert([]entry{p}, now), nil
}

// sweep forgets the tombstones that have served their time.
func (s *Store) sweep(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == len(s.all) {
		return
	}
	for _, p := range s.all {
		if p.expired(now) {
			s.remove(&p)
		}
	}
}

// current is the store at this moment.
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

// Values returns the values whose names begin with prefix, sorted by name, and the revision
// of all values, which rises with each change. The slice is shared between calls, as are the
// bytes. T is the caller's type of an Item, the same in all calls.
func Values[T ~struct {
	Name    string
	Version uint64
	Value   []byte
}](s *Store, prefix string) (values []T, revision uint64) {
	c := s.current()
	c.once.Do(func() {
		all := make([]T, 0, len(c.all))
		for i := range c.all {
			if !c.all[i].tombstone() {
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

// after is where the names begin that follow one.
func (c *snapshot) after(name string) []entry {
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

// Stats returns what the node knows.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{s.values, len(s.all) - s.values, s.bytes, s.revision, s.dropped}
}

// Question is what one node asks another: what it has that differs.
type Question struct {
	after   string // names up to this one have been compared
	digests digests
}

// difference is the answer: in the parts that differ, the entries whose names
// come next.
type difference struct {
	list []entry
	more bool // further names follow the last one
}

// differs answers another's question, with about so many bytes at most, and one
// entry at least.
func (s *Store) differs(q *Question, most int) (d difference) {
	own := s.digestsNow()
	if own == q.digests {
		return d
	}
	for _, p := range s.current().after(q.after) {
		if at := part(p.Name); own[at] == q.digests[at] {
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
