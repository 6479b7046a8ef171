package stats

import (
	"cmp"
	"math"
	"slices"
)

// sketch is a Space-Saving sketch (Metwally, Agrawal and El Abbadi, "Efficient
// Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005) with weights.
// All counts are halved once for each half-life. A key without a counter takes over the
// smallest counter with its count, which is the possible error (over) of the new count. So for
// the halved weights of each key:
//
//   - the count of an entry is at least the true sum, and count-over is at most the sum;
//   - the sum of a key without an entry is at most floor, which is at most the sum of all
//     weights divided by the size of the sketch.
//
// A sketch is not safe for concurrent use, and time is an argument.
type sketch struct {
	counters []counter          // counters in no order
	heap     []int32            // indexes in counters as a heap, the smallest count first
	at       map[[16]byte]int32 // index in counters of each key
	size     int
	halfLife int64
	halved   int64 // time at which the counts were last halved
}

type counter struct {
	id          [16]byte
	count, over float64
	place       int32 // index in heap
	limit       string
	key         []byte // a buffer that the next key reuses, so that adding allocates nothing
}

// entry is a key that is among the most frequent.
type entry struct {
	id          [16]byte
	limit, key  string
	count, over float64
}

// newSketch returns a sketch with the given number of counters, at least one. The
// argument halfLife is above zero, and has the same unit as the argument now.
func newSketch(size int, halfLife, now int64) *sketch {
	return &sketch{at: make(map[[16]byte]int32), size: size, halfLife: halfLife, halved: now}
}

// add adds weight to the count of a key. It copies the texts, and masks the text of a secret key.
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
		s.siftUp(i) // the count of the new counter is 0
	default:
		i = s.heap[0]
		c := &s.counters[i]
		delete(s.at, c.id)
		c.over = c.count
		s.name(i, id, limit, key, secret)
	}
	s.counters[i].count += weight
	s.siftDown(s.counters[i].place)
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
	mask      = "…" // replaces the part of a secret that is not kept
	tailBytes = 4   // length of the tail of a secret
	minSecret = 16  // length in bytes of the shortest secret whose tail is kept
)

// tail returns the last characters of a secret: enough to recognize the secret and too few to guess
// it. It returns "" for a secret of less than minSecret bytes, and for a tail that is not printable
// ASCII without spaces, because such a tail could begin within a character.
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

// forget halves all counts once for each half-life that has passed since the last call. Halving a
// floating-point number is exact, so the bounds and the order of the heap remain valid.
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

// top returns at most n entries in order of decreasing count.
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

// floor returns the maximum count of a key without a counter.
func (s *sketch) floor(now int64) float64 {
	s.forget(now)
	if len(s.counters) < s.size {
		return 0
	}
	return s.counters[s.heap[0]].count
}

func (s *sketch) isLess(a, b int32) bool {
	return s.counters[s.heap[a]].count < s.counters[s.heap[b]].count
}

func (s *sketch) swap(a, b int32) {
	s.heap[a], s.heap[b] = s.heap[b], s.heap[a]
	s.counters[s.heap[a]].place, s.counters[s.heap[b]].place = a, b
}

// siftUp restores the order of the heap if the count at a place may be too small.
func (s *sketch) siftUp(at int32) {
	for at > 0 && s.isLess(at, (at-1)/2) {
		s.swap(at, (at-1)/2)
		at = (at - 1) / 2
	}
}

// siftDown restores the order of the heap if the count at a place may be too large.
func (s *sketch) siftDown(at int32) {
	for {
		least := at
		for child := 2*at + 1; child <= 2*at+2 && int(child) < len(s.heap); child++ {
			if s.isLess(child, least) {
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
