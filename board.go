package weir

import (
	"bytes"
	"cmp"
	"encoding/binary"
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
	maxPublishedName  = 256
	maxPublishedValue = 4 << 10
	maxPublished      = 16_384  // values that Publish lets there be
	maxPublishedBytes = 8 << 20 // of their names and values
	// A board holds twice as much: both sides of a split may have filled theirs,
	// and what was taken back is remembered.
	maxPostings     = 2 * maxPublished
	maxPostingBytes = 2 * maxPublishedBytes
	// tombstoneFor is how long what was taken back is remembered: who was cut off
	// for longer brings it back.
	tombstoneFor = 24 * time.Hour
)

// posting is what is known of one name.
type posting struct {
	Published
	since int64 // of a tombstone: when it came to be, by this node's clock; it travels as an age
}

func (p *posting) tombstone() bool { return len(p.Value) == 0 }

func (p *posting) size() int { return len(p.Name) + len(p.Value) }

// compare orders postings of one name: a merge keeps the greater one, so it does
// not matter in which order, how often or by which way they come.
func (p *posting) compare(o *posting) int {
	return cmp.Or(cmp.Compare(p.Version, o.Version), bytes.Compare(p.Value, o.Value))
}

// order is which postings stay if there are too many: values before tombstones,
// and then by name, the same on all nodes.
func (p *posting) order(o *posting) int {
	if p.tombstone() != o.tombstone() {
		if o.tombstone() {
			return -1
		}
		return 1
	}
	return strings.Compare(p.Name, o.Name)
}

// digests are one number for each part of a board. Two boards that have the same
// number have the same postings there.
type digests [256]uint64

// part is which of them counts a name.
func part(name string) uint8 { return uint8(xxhash.Sum64String(name) >> 56) }

func (p *posting) digest() uint64 {
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

// board is all that is published, as one node knows it. It is a step function:
// postings and the time go in, what was new comes out.
type board struct {
	mu       sync.Mutex
	all      map[string]posting
	digests  digests
	revision uint64
	values   int // that are no tombstones
	bytes    int // of all
	live     int // bytes of values
	dropped  uint64
	snapshot atomic.Pointer[snapshot] // nil when something has changed
}

// snapshot is a board at one moment, sorted by name. It is immutable.
type snapshot struct {
	all      []posting
	values   []Published
	revision uint64
}

// put merges postings, and returns those that were news.
func (b *board) put(list []posting, now int64) (news []posting) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.merge(list, now)
}

// merge is put while mu is held.
func (b *board) merge(list []posting, now int64) (news []posting) {
	digests, revision, dropped := b.digests, b.revision, b.dropped
	for _, p := range list {
		if p.tombstone() && now-p.since >= int64(tombstoneFor) {
			continue
		}
		held, known := b.all[p.Name]
		if known {
			if p.compare(&held) <= 0 {
				continue
			}
			b.take(&held)
		}
		b.add(&p)
		news = append(news, p)
	}
	if b.trim() {
		news = slices.DeleteFunc(news, func(p posting) bool {
			held, known := b.all[p.Name]
			return !known || p.compare(&held) != 0
		})
		if b.digests == digests { // there was no room before either
			b.revision, b.dropped = revision, dropped
		}
	}
	return news
}

func (b *board) add(p *posting) {
	if b.all == nil {
		b.all = make(map[string]posting)
	}
	b.all[p.Name] = *p
	b.digests[part(p.Name)] ^= p.digest()
	b.bytes += p.size()
	if !p.tombstone() {
		b.values++
		b.live += p.size()
	}
	b.changed()
}

func (b *board) take(p *posting) {
	delete(b.all, p.Name)
	b.digests[part(p.Name)] ^= p.digest()
	b.bytes -= p.size()
	if !p.tombstone() {
		b.values--
		b.live -= p.size()
	}
	b.changed()
}

func (b *board) changed() {
	b.revision++
	b.snapshot.Store(nil)
}

// trim drops what there is no room for, the same on all nodes, and says whether
// that was anything.
func (b *board) trim() bool {
	if len(b.all) <= maxPostings && b.bytes <= maxPostingBytes {
		return false
	}
	ordered := slices.SortedFunc(maps.Values(b.all), func(p, o posting) int { return p.order(&o) })
	for len(ordered) > maxPostings || b.bytes > maxPostingBytes {
		last := len(ordered) - 1
		b.take(&ordered[last])
		ordered = ordered[:last]
		b.dropped++
	}
	return true
}

// crumble forgets the tombstones that have served their time.
func (b *board) crumble(now int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.values == len(b.all) {
		return
	}
	for _, p := range b.all {
		if p.tombstone() && now-p.since >= int64(tombstoneFor) {
			b.take(&p)
		}
	}
}

// current is the board at this moment.
func (b *board) current() *snapshot {
	if s := b.snapshot.Load(); s != nil {
		return s
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &snapshot{
		all:      slices.SortedFunc(maps.Values(b.all), func(p, o posting) int { return strings.Compare(p.Name, o.Name) }),
		values:   make([]Published, 0, b.values),
		revision: b.revision,
	}
	for i := range s.all {
		if !s.all[i].tombstone() {
			s.values = append(s.values, s.all[i].Published)
		}
	}
	b.snapshot.Store(s)
	return s
}

// prefixed is the values whose names begin with prefix.
func (s *snapshot) prefixed(prefix string) []Published {
	from, _ := slices.BinarySearchFunc(s.values, prefix, func(p Published, name string) int { return strings.Compare(p.Name, name) })
	rest := s.values[from:]
	n, _ := slices.BinarySearchFunc(rest, prefix, func(p Published, prefix string) int {
		if strings.HasPrefix(p.Name, prefix) {
			return -1
		}
		return 1
	})
	return rest[:n:n]
}

// after is where the names begin that follow one.
func (s *snapshot) after(name string) []posting {
	i, found := slices.BinarySearchFunc(s.all, name, func(p posting, name string) int { return strings.Compare(p.Name, name) })
	if found {
		i++
	}
	return s.all[i:]
}

func (b *board) digestsNow() digests {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.digests
}

// comparison is one node's question to another: what it has that differs.
type comparison struct {
	after   string // names up to this one have been compared
	digests digests
}

// difference is the answer: in the parts that differ, the postings whose names
// come next.
type difference struct {
	list []posting
	more bool // further names follow the last one
}

// differs answers another's question, with about so many bytes at most, and one
// posting at least.
func (b *board) differs(c *comparison, most int) (d difference) {
	own := b.digestsNow()
	if own == c.digests {
		return d
	}
	for _, p := range b.current().after(c.after) {
		if at := part(p.Name); own[at] == c.digests[at] {
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
