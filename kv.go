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

	countsync "github.com/weir-go/weir/sync"
)

// Bounds of what is published.
const (
	maxPublishedName  = 256
	maxPublishedValue = 4 << 10
	maxPublished      = 16_384  // values that Publish lets there be
	maxPublishedBytes = 8 << 20 // of their names and values
	// A store holds twice as much: both sides of a split may have filled theirs,
	// and what was taken back is remembered.
	maxEntries    = 2 * maxPublished
	maxEntryBytes = 2 * maxPublishedBytes
	// tombstoneFor is how long what was taken back is remembered: who was cut off
	// for longer brings it back.
	tombstoneFor = 24 * time.Hour
)

// kvEntry is what is known of one name.
type kvEntry struct {
	Published
	since int64 // of a tombstone: when it came to be, by this node's clock; it travels as an age
}

func (p *kvEntry) tombstone() bool { return len(p.Value) == 0 }

func (p *kvEntry) size() int { return len(p.Name) + len(p.Value) }

// compare orders entries of one name: a merge keeps the greater one, so it does
// not matter in which order, how often or by which way they come.
func (p *kvEntry) compare(o *kvEntry) int {
	return cmp.Or(cmp.Compare(p.Version, o.Version), bytes.Compare(p.Value, o.Value))
}

// order is which entries stay if there are too many: values before tombstones,
// and then by name, the same on all nodes.
func (p *kvEntry) order(o *kvEntry) int {
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

func (p *kvEntry) digest() uint64 {
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

// kvStore is all that is published, as one node knows it. It is a step function:
// entries and the time go in, what was new comes out.
type kvStore struct {
	mu       sync.Mutex
	all      map[string]kvEntry
	digests  digests
	revision uint64
	values   int // that are no tombstones
	bytes    int // of all
	live     int // bytes of values
	dropped  uint64
	snapshot atomic.Pointer[snapshot] // nil when something has changed
}

// snapshot is a store at one moment, sorted by name. It is immutable.
type snapshot struct {
	all      []kvEntry
	values   []Published
	revision uint64
}

// put merges entries, and returns those that were news. Those whose version is too high
// by latest it leaves out, and it returns the last of these.
func (kv *kvStore) put(list []kvEntry, now int64, latest uint64) (news []kvEntry, refused *kvEntry) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	timely := make([]kvEntry, 0, len(list))
	for i := range list {
		if kv.takes(&list[i], latest) {
			timely = append(timely, list[i])
		} else {
			refused = &list[i]
		}
	}
	return kv.merge(timely, now), refused
}

// latestVersion is the highest version that is taken at a time of day, in nanoseconds
// since 1970. Versions are bounded as the numbers of resets are: above the highest number
// of all there is none, so that a value which had it would hold for good.
func latestVersion(timeOfDay int64) uint64 {
	return uint64(max(0, timeOfDay)) + uint64(countsync.ResetSlack)
}

// takes reports whether an entry's version is within bounds. The next one above that of
// the entry which is held always is, so that each value can be replaced, and deleted,
// also where a clock was set back after the value had come.
func (kv *kvStore) takes(p *kvEntry, latest uint64) bool {
	if p.Version <= latest {
		return true
	}
	held, known := kv.all[p.Name]
	return known && p.Version-1 <= held.Version
}

// merge is put while mu is held.
func (kv *kvStore) merge(list []kvEntry, now int64) (news []kvEntry) {
	digests, revision, dropped := kv.digests, kv.revision, kv.dropped
	for _, p := range list {
		if p.tombstone() && now-p.since >= int64(tombstoneFor) {
			continue
		}
		held, known := kv.all[p.Name]
		if known {
			if p.compare(&held) <= 0 {
				continue
			}
			kv.take(&held)
		}
		kv.add(&p)
		news = append(news, p)
	}
	if kv.trim() {
		news = slices.DeleteFunc(news, func(p kvEntry) bool {
			held, known := kv.all[p.Name]
			return !known || p.compare(&held) != 0
		})
		if kv.digests == digests { // there was no room before either
			kv.revision, kv.dropped = revision, dropped
		}
	}
	return news
}

func (kv *kvStore) add(p *kvEntry) {
	if kv.all == nil {
		kv.all = make(map[string]kvEntry)
	}
	kv.all[p.Name] = *p
	kv.digests[part(p.Name)] ^= p.digest()
	kv.bytes += p.size()
	if !p.tombstone() {
		kv.values++
		kv.live += p.size()
	}
	kv.changed()
}

func (kv *kvStore) take(p *kvEntry) {
	delete(kv.all, p.Name)
	kv.digests[part(p.Name)] ^= p.digest()
	kv.bytes -= p.size()
	if !p.tombstone() {
		kv.values--
		kv.live -= p.size()
	}
	kv.changed()
}

func (kv *kvStore) changed() {
	kv.revision++
	kv.snapshot.Store(nil)
}

// trim drops what there is no room for, the same on all nodes, and says whether
// that was anything.
func (kv *kvStore) trim() bool {
	if len(kv.all) <= maxEntries && kv.bytes <= maxEntryBytes {
		return false
	}
	ordered := slices.SortedFunc(maps.Values(kv.all), func(p, o kvEntry) int { return p.order(&o) })
	for len(ordered) > maxEntries || kv.bytes > maxEntryBytes {
		last := len(ordered) - 1
		kv.take(&ordered[last])
		ordered = ordered[:last]
		kv.dropped++
	}
	return true
}

// sweep forgets the tombstones that have served their time.
func (kv *kvStore) sweep(now int64) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	if kv.values == len(kv.all) {
		return
	}
	for _, p := range kv.all {
		if p.tombstone() && now-p.since >= int64(tombstoneFor) {
			kv.take(&p)
		}
	}
}

// current is the store at this moment.
func (kv *kvStore) current() *snapshot {
	if s := kv.snapshot.Load(); s != nil {
		return s
	}
	kv.mu.Lock()
	defer kv.mu.Unlock()
	s := &snapshot{
		all:      slices.SortedFunc(maps.Values(kv.all), func(p, o kvEntry) int { return strings.Compare(p.Name, o.Name) }),
		values:   make([]Published, 0, kv.values),
		revision: kv.revision,
	}
	for i := range s.all {
		if !s.all[i].tombstone() {
			s.values = append(s.values, s.all[i].Published)
		}
	}
	kv.snapshot.Store(s)
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
func (s *snapshot) after(name string) []kvEntry {
	i, found := slices.BinarySearchFunc(s.all, name, func(p kvEntry, name string) int { return strings.Compare(p.Name, name) })
	if found {
		i++
	}
	return s.all[i:]
}

func (kv *kvStore) digestsNow() digests {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	return kv.digests
}

// comparison is one node's question to another: what it has that differs.
type comparison struct {
	after   string // names up to this one have been compared
	digests digests
}

// difference is the answer: in the parts that differ, the entries whose names
// come next.
type difference struct {
	list []kvEntry
	more bool // further names follow the last one
}

// differs answers another's question, with about so many bytes at most, and one
// entry at least.
func (kv *kvStore) differs(c *comparison, most int) (d difference) {
	own := kv.digestsNow()
	if own == c.digests {
		return d
	}
	for _, p := range kv.current().after(c.after) {
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
