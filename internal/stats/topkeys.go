package stats

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/wire"
)

const (
	// MaxTop is the maximum number of keys of a list, in an answer and in the result of MergeTop.
	MaxTop = 100
	// topHalfLife is the time between two halvings of all counts.
	topHalfLife = time.Minute
	// topBytes is the maximum size of the entries in the answer of a member. Long keys reduce the number of keys.
	topBytes = 48 << 10
	// maxCount bounds a count of a key in an answer, so that the counts of all members can be
	// added.
	maxCount = 1 << 48
)

// TopKeys finds the keys that callers of this node asked for most, and the keys that were denied to
// them most. The zero TopKeys is switched off. A TopKeys is safe for concurrent use.
type TopKeys struct {
	mu            sync.Mutex
	asked, denied *sketch // nil if switched off
}

// Start turns k on, with room for size keys in each of its two lists. Start must be called
// before all other methods. A size of 0 or less changes nothing.
func (k *TopKeys) Start(size int, now int64) {
	if size > 0 {
		k.asked, k.denied = newSketch(size, int64(topHalfLife), now), newSketch(size, int64(topHalfLife), now)
	}
}

// Add records a check with the given weight: the number of checks that it represents. Add does
// nothing if it cannot lock k at once, so that no check waits. If secret is true, Add stores only
// the masked text of the key.
func (k *TopKeys) Add(id [16]byte, limit, key string, secret, allowed bool, weight uint64, now int64) {
	if k.asked == nil {
		return
	}
	if !k.mu.TryLock() {
		return
	}
	k.asked.add(id, float64(weight), limit, key, secret, now)
	if !allowed {
		k.denied.add(id, float64(weight), limit, key, secret, now)
	}
	k.mu.Unlock()
}

// Top contains the top keys of a node.
type Top struct {
	Silent        bool // the top keys of the node are switched off, and there are no lists
	asked, denied topList
}

// topList is the contents of a sketch of a node.
type topList struct {
	floor uint64 // the maximum count of a key that is not listed
	keys  []topEntry
}

type topEntry struct {
	id          [16]byte
	count, over uint64
	limit, key  string
	known       bool
}

// Top returns the top keys of this node.
func (k *TopKeys) Top(now int64) Top {
	if k.asked == nil {
		return Top{Silent: true}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return Top{asked: listOf(k.asked, now), denied: listOf(k.denied, now)}
}

// listOf returns the contents of s as whole numbers, rounded so that the bounds hold.
func listOf(s *sketch, now int64) (l topList) {
	all := s.top(MaxTop+1, now)
	l.floor = uint64(math.Ceil(s.floor(now)))
	if len(all) > MaxTop {
		l.floor, all = uint64(math.Ceil(all[MaxTop].count)), all[:MaxTop]
	}
	for _, e := range all {
		count := uint64(math.Ceil(e.count))
		l.keys = append(l.keys, topEntry{e.id, count, count - uint64(math.Floor(e.count-e.over)), e.limit, e.key, true})
	}
	return l
}

// Append appends the answer of a member to a request for its top keys. It includes the text of keys
// only if withKeys is true. Numbers are unsigned varints. If kept is 0, the member keeps no top keys, and the answer ends there. The
// length of a key is increased by one; 0 means that the answer does not include the text.
//
//	answer  kept 1 | list asked | list denied
//	list    floor | number of entries | entries
//	entry   id 16 | count | over | length of limit | limit | length of key | key
func (t *Top) Append(b []byte, withKeys bool) []byte {
	if t.Silent {
		return append(b, 0)
	}
	b = t.asked.append(append(b, 1), withKeys)
	return t.denied.append(b, withKeys)
}

// append appends as many entries of the list as there is room for.
func (l *topList) append(b []byte, text bool) []byte {
	var entries []byte
	floor, n := l.floor, 0
	for _, e := range l.keys {
		one := append([]byte(nil), e.id[:]...)
		one = binary.AppendUvarint(one, e.count)
		one = binary.AppendUvarint(one, e.over)
		one = wire.AppendText(one, e.limit)
		if text && e.known {
			one = binary.AppendUvarint(one, uint64(len(e.key))+1)
			one = append(one, e.key...)
		} else {
			one = binary.AppendUvarint(one, 0)
		}
		if len(entries)+len(one) > topBytes/2 {
			floor = max(floor, e.count)
			break
		}
		entries = append(entries, one...)
		n++
	}
	b = binary.AppendUvarint(b, floor)
	b = binary.AppendUvarint(b, uint64(n))
	return append(b, entries...)
}

// ParseTop parses the answer of a member. The error is wire.ErrMalformed.
func ParseTop(answer []byte) (t Top, err error) {
	c := wire.NewCursor(answer)
	if t.Silent = c.Number(1) == 0; !t.Silent {
		t.asked, t.denied = readList(&c), readList(&c)
	}
	if c.Remaining() > 0 {
		c.Fail()
	}
	if c.Err() != nil {
		return Top{}, c.Err()
	}
	return t, nil
}

func readList(c *wire.Cursor) (l topList) {
	l.floor = c.Number(maxCount)
	for range c.Number(MaxTop) {
		var e topEntry
		copy(e.id[:], c.Bytes(len(e.id)))
		e.count = c.Number(maxCount)
		e.over = c.Number(e.count)
		e.limit = c.Text(wire.MaxNameBytes)
		if size := c.Number(wire.MaxKeyBytes + 1); size > 0 {
			e.key, e.known = string(c.Bytes(int(size-1))), true
		}
		if e.count < l.floor {
			c.Fail()
		}
		l.keys = append(l.keys, e)
	}
	return l
}

// TopKey is a key of a limit, and how often it was asked for and denied. Each count is too high
// by at most its Over.
type TopKey struct {
	Limit                string
	ID                   [16]byte
	Key                  string
	Known                bool // a node has included the text of the key
	Masked               bool // Key is the masked text of a secret; set by Survey
	Asks, AsksOver       uint64
	Denials, DenialsOver uint64
}

// MergeTop merges the lists of nodes into the keys that are asked for most and denied most. A node
// that does not list a key may have been asked for the key as often as the floor of its list. So
// this floor is added to the count and to the Over of the key.
func MergeTop(all []Top, most int) (asked, denied []TopKey) {
	keys := make(map[[16]byte]*TopKey)
	// A key in either list gets the floors of both lists, so all keys are collected first.
	for i := range all {
		for _, e := range slices.Concat(all[i].asked.keys, all[i].denied.keys) {
			k := keys[e.id]
			if k == nil {
				k = &TopKey{Limit: e.limit, ID: e.id}
				keys[e.id] = k
			}
			if e.known && !k.Known {
				k.Key, k.Known = e.key, true
			}
		}
	}
	asks := func(k *TopKey) (count, over *uint64) { return &k.Asks, &k.AsksOver }
	denials := func(k *TopKey) (count, over *uint64) { return &k.Denials, &k.DenialsOver }
	tally := func(list func(*Top) *topList, of func(*TopKey) (count, over *uint64)) {
		floors := uint64(0)
		for i := range all {
			l := list(&all[i])
			floors += l.floor
			for _, e := range l.keys {
				count, over := of(keys[e.id])
				*count += e.count - l.floor // floors includes the floor of each node
				*over += e.over - l.floor
			}
		}
		for _, k := range keys {
			count, over := of(k)
			*count += floors
			*over += floors
		}
	}
	tally(func(t *Top) *topList { return &t.asked }, asks)
	tally(func(t *Top) *topList { return &t.denied }, denials)
	pick := func(of func(*TopKey) (count, over *uint64)) (top []TopKey) {
		for _, k := range keys {
			if count, over := of(k); *count > *over {
				top = append(top, *k)
			}
		}
		slices.SortFunc(top, func(a, b TopKey) int {
			x, _ := of(&a)
			y, _ := of(&b)
			return cmp.Or(cmp.Compare(*y, *x), slices.Compare(a.ID[:], b.ID[:]))
		})
		return top[:min(len(top), most)]
	}
	return pick(asks), pick(denials)
}
