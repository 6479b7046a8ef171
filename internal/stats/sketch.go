package stats

import (
	"cmp"
	"math"
	"slices"
)

// sketch is a Space-Saving sketch (Metwally, Agrawal and El Abbadi, "Efficient
// Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005) with weights,
// which forgets: what was added before counts half for each half-life that has passed
// since. A key that has no counter takes over the smallest one, and its count as that
// by which its own may be too high. So for every key, of what was added and not
// forgotten:
//
//   - an entry's count is no less than the truth, and count-over is no more;
//   - a key without an entry has at most floor, which is at most the sum of all weights
//     by the sketch's size.
//
// It is not safe for concurrent use, and time is an argument.
type sketch struct {
	counters []counter // in no order
	heap     []int32   // of counters, the smallest count first
	at       map[[16]byte]int32
	size     int
	halfLife int64
	halved   int64 // when the counts were last halved
}

type counter struct {
	id          [16]byte
	count, over float64
	place       int32 // in heap
	limit       string
	key         []byte // kept from one key to the next, so that adding allocates nothing
}

// entry is one of the most frequent keys.
type entry struct {
	id          [16]byte
	limit, key  string
	count, over float64
}

// newSketch returns a sketch of size counters, at least one. halfLife is above zero, in the unit
// of time.
func newSketch(size int, halfLife, now int64) *sketch {
	return &sketch{at: make(map[[16]byte]int32), size: size, halfLife: halfLife, halved: now}
}

// add counts a key weight times. It keeps copies of the texts, of a secret key the masked one.
func (s *sketch) add(id [16]byte, weight float64, limit, key string, secret bool, now int64) {
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

func (s *sketch) name(i int32, id [16]byte, limit, key string, secret bool) {
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
func (s *sketch) forget(now int64) {
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

// top returns the n most frequent keys, the most frequent first.
func (s *sketch) top(n int, now int64) []entry {
	s.forget(now)
	order := slices.Clone(s.heap)
	slices.SortFunc(order, func(a, b int32) int {
		x, y := &s.counters[a], &s.counters[b]
		return cmp.Or(cmp.Compare(y.count, x.count), slices.Compare(x.id[:], y.id[:]))
	})
	top := make([]entry, min(n, len(order)))
	for i := range top {
		c := &s.counters[order[i]]
		top[i] = entry{c.id, c.limit, string(c.key), c.count, c.over}
	}
	return top
}

// floor is the most that a key without a counter can have.
func (s *sketch) floor(now int64) float64 {
	s.forget(now)
	if len(s.counters) < s.size {
		return 0
	}
	return s.counters[s.heap[0]].count
}

func (s *sketch) less(a, b int32) bool {
	return s.counters[s.heap[a]].count < s.counters[s.heap[b]].count
}

func (s *sketch) swap(a, b int32) {
	s.heap[a], s.heap[b] = s.heap[b], s.heap[a]
	s.counters[s.heap[a]].place, s.counters[s.heap[b]].place = a, b
}

// up restores the heap's order where the count at a place may be too small for it.
func (s *sketch) up(at int32) {
	for at > 0 && s.less(at, (at-1)/2) {
		s.swap(at, (at-1)/2)
		at = (at - 1) / 2
	}
}

// down restores the heap's order where the count at a place may be too large for it.
func (s *sketch) down(at int32) {
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
