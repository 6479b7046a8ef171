// Package topkeys finds the most frequent of a stream of keys in bounded memory.
package topkeys

import (
	"cmp"
	"math"
	"slices"
)

// ID stands for a key.
type ID = [16]byte

// Sketch is a Space-Saving sketch (Metwally, Agrawal and El Abbadi, "Efficient
// Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005) with weights,
// which forgets: what was added before counts half for each half-life that has passed
// since. A key that has no counter takes over the smallest one, and its count as that
// by which its own may be too high. So for every key, of what was added and not
// forgotten:
//
//   - an Entry's Count is no less than the truth, and Count-Over is no more;
//   - a key without an Entry has at most Floor, which is at most the sum of all weights
//     by the Sketch's size.
//
// It is not safe for concurrent use, and time is an argument.
type Sketch struct {
	counters []counter // in no order
	heap     []int32   // of counters, the smallest count first
	at       map[ID]int32
	size     int
	halfLife int64
	halved   int64 // when the counts were last halved
}

type counter struct {
	id          ID
	count, over float64
	place       int32 // in heap
	limit       string
	key         []byte // kept from one key to the next, so that adding allocates nothing
}

// Entry is one of the most frequent keys.
type Entry struct {
	ID          ID
	Limit, Key  string
	Count, Over float64
}

// New returns a Sketch of so many counters, at least one. A halfLife is above zero, in
// the unit that time has.
func New(size int, halfLife, now int64) *Sketch {
	return &Sketch{at: make(map[ID]int32), size: size, halfLife: halfLife, halved: now}
}

// Add counts a key weight times. It keeps copies of the texts, of a secret key the masked one.
func (s *Sketch) Add(id ID, weight float64, limit, key string, secret bool, now int64) {
	s.forget(now)
	i, known := s.at[id]
	switch {
	case known:
	case len(s.counters) < s.size:
		i = int32(len(s.counters))
		s.counters = append(s.counters, counter{place: i})
		s.heap = append(s.heap, i)
		s.name(i, id, limit, key, secret)
		s.up(i) // it has nothing yet
	default:
		i = s.heap[0]
		c := &s.counters[i]
		delete(s.at, c.id)
		c.over = c.count
		s.name(i, id, limit, key, secret)
	}
	s.counters[i].count += weight
	s.down(s.counters[i].place)
}

func (s *Sketch) name(i int32, id ID, limit, key string, secret bool) {
	c := &s.counters[i]
	c.id, c.limit, c.key = id, limit, c.key[:0]
	if secret {
		c.key, key = append(c.key, mask...), tail(key)
	}
	c.key = append(c.key, key...)
	s.at[id] = i
}

const (
	mask      = "…" // in the place of what is not kept of a secret
	tailBytes = 4   // of a secret that are kept
	minSecret = 16  // bytes, below which nothing is
)

// tail returns what may be known of a secret: enough to recognise it and too little to guess
// it. Of one that is no ASCII text it is nothing, since it could begin within a character.
func tail(secret string) string {
	if len(secret) < minSecret {
		return ""
	}
	end := secret[len(secret)-tailBytes:]
	for i := range len(end) {
		if end[i] <= ' ' || end[i] > '~' {
			return ""
		}
	}
	return end
}

// forget halves the counts once for each half-life that has passed. Halves of floating
// point numbers are exact, so the bounds hold, and the heap's order.
func (s *Sketch) forget(now int64) {
	passed := (now - s.halved) / s.halfLife
	if passed <= 0 {
		return
	}
	s.halved += passed * s.halfLife
	by := -int(min(passed, 1<<10))
	for i := range s.counters {
		c := &s.counters[i]
		c.count, c.over = math.Ldexp(c.count, by), math.Ldexp(c.over, by)
	}
}

// Top returns the n most frequent keys, the most frequent first.
func (s *Sketch) Top(n int, now int64) []Entry {
	s.forget(now)
	order := slices.Clone(s.heap)
	slices.SortFunc(order, func(a, b int32) int {
		x, y := &s.counters[a], &s.counters[b]
		return cmp.Or(cmp.Compare(y.count, x.count), slices.Compare(x.id[:], y.id[:]))
	})
	top := make([]Entry, min(n, len(order)))
	for i := range top {
		c := &s.counters[order[i]]
		top[i] = Entry{c.id, c.limit, string(c.key), c.count, c.over}
	}
	return top
}

// Floor is the most that a key without a counter can have.
func (s *Sketch) Floor(now int64) float64 {
	s.forget(now)
	if len(s.counters) < s.size {
		return 0
	}
	return s.counters[s.heap[0]].count
}

func (s *Sketch) less(a, b int32) bool {
	return s.counters[s.heap[a]].count < s.counters[s.heap[b]].count
}

func (s *Sketch) swap(a, b int32) {
	s.heap[a], s.heap[b] = s.heap[b], s.heap[a]
	s.counters[s.heap[a]].place, s.counters[s.heap[b]].place = a, b
}

// up restores the heap's order where the count at a place may be too small for it.
func (s *Sketch) up(at int32) {
	for at > 0 && s.less(at, (at-1)/2) {
		s.swap(at, (at-1)/2)
		at = (at - 1) / 2
	}
}

// down restores the heap's order where the count at a place may be too large for it.
func (s *Sketch) down(at int32) {
	for {
		least := at
		for child := 2*at + 1; child <= 2*at+2 && int(child) < len(s.heap); child++ {
			if s.less(child, least) {
				least = child
			}
		}
		if least == at {
			return
		}
		s.swap(at, least)
		at = least
	}
}
