// Package epoch implements the common clock of a cluster: how long the cluster has run, by the
// monotonic clocks of its nodes.
//
// The clock of an epoch starts with the node that begins the epoch. A node that meets another epoch
// adopts the epoch with the greater number, and remembers the relation of the ages of both epochs. So
// a moment of a former epoch can still be placed. The time of day of a node is never compared with the
// time of day of another node.
//
// After all nodes have stopped, a node that starts begins a new epoch. The duration of the stop is
// not known, so the relation to the moments in snapshots leaves it out.
package epoch

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/weir-go/weir/internal/wire"
)

// Moment is a moment of a cluster's run. A moment of epoch 0 has no meaning for other nodes.
type Moment struct {
	Epoch uint64
	Age   int64 // age of the epoch at the moment, in nanoseconds
}

// Relation contains the difference between the age of another epoch and the age of the epoch of the
// State that has the Relation. The age of an epoch is the time for which the epoch has run.
type Relation struct {
	Epoch  uint64
	Offset int64 // an age of Epoch plus Offset is the age of the State's epoch at the same moment
	// Stopped is set if all nodes stopped between the two epochs. No age includes the time of the
	// stop.
	Stopped bool
}

// State is the knowledge of a node about the run of its cluster.
type State struct {
	Moment
	Relations []Relation // in the order in which they were learned
}

// MaxRelations bounds State.Relations. A moment of an epoch whose relation was dropped cannot be
// placed.
const MaxRelations = 32

// maxAge bounds ages and offsets, so that a sum of two does not overflow.
const maxAge = 1 << 61

// StateBytes is the maximum encoded length of a State.
const StateBytes = 3*binary.MaxVarintLen64 + MaxRelations*(2*binary.MaxVarintLen64+1)

// Append appends the encoded state, for Read to parse.
func (s *State) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, s.Epoch)
	b = binary.AppendUvarint(b, uint64(s.Age))
	b = binary.AppendUvarint(b, uint64(len(s.Relations)))
	for _, r := range s.Relations {
		b = binary.AppendUvarint(b, r.Epoch)
		b = binary.AppendVarint(b, r.Offset)
		stopped := uint64(0)
		if r.Stopped {
			stopped = 1
		}
		b = binary.AppendUvarint(b, stopped)
	}
	return b
}

// Read parses a state. If the state is malformed, the cursor fails.
func Read(c *wire.Cursor) (s State) {
	s.Epoch, s.Age = c.Number(1<<64-1), int64(c.Number(maxAge))
	for range c.Number(MaxRelations) {
		r := Relation{Epoch: c.Number(1<<64 - 1)}
		offset := c.Number(2 * maxAge)
		r.Offset = int64(offset>>1) ^ -int64(offset&1)
		r.Stopped = c.Number(1) == 1
		s.Relations = append(s.Relations, r)
	}
	return s
}

// Clock has the epoch of a node and its age. It is safe for concurrent use. The argument now of its
// methods is the monotonic time of the node in nanoseconds.
type Clock struct {
	mu        sync.Mutex
	epoch     uint64 // 0 before the node has begun or adopted an epoch
	began     int64  // the monotonic time at which the age of the epoch was 0
	relations []Relation
}

// New returns the clock of a node that starts.
func New(now int64) *Clock { return &Clock{began: now} }

// Now returns the moment of the present epoch at the time now.
func (c *Clock) Now(now int64) Moment {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.moment(now)
}

func (c *Clock) moment(now int64) Moment {
	return Moment{c.epoch, min(max(0, now-c.began), maxAge)}
}

// State returns the epoch, its age, and all relations.
func (c *Clock) State(now int64) State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return State{c.moment(now), slices.Clone(c.relations)}
}

// Begin begins an epoch, unless there is an epoch already. The age of the epoch is the time
// since New.
func (c *Clock) Begin(epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch == 0 {
		c.epoch = max(1, epoch)
		c.forget(c.epoch)
	}
}

// Meet applies the state that another member has at the time now.
func (c *Clock) Meet(s State, now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ahead := s.Age - c.moment(now).Age // by how much the age of s.Epoch exceeds the age of c.epoch
	switch {
	case s.Epoch == c.epoch && s.Epoch != 0:
		c.began -= max(0, ahead) // the clock of a suspended machine may have stopped
		ahead = 0
	case s.Epoch > c.epoch:
		for i := range c.relations {
			c.relations[i].Offset += ahead
		}
		before := c.epoch
		c.epoch, c.began = s.Epoch, now-s.Age
		c.forget(c.epoch)
		c.relate(Relation{before, ahead, false})
		ahead = 0
	default:
		c.relate(Relation{s.Epoch, -ahead, false})
	}
	for _, r := range s.Relations {
		r.Offset -= ahead
		c.relate(r)
	}
}

// Find applies a state from a snapshot. If the epoch of the state is the present epoch, or if c has
// a relation to that epoch that is not Stopped, Find places the state on the present clock. Otherwise
// all nodes have stopped since the state was written, so the state is older than the present epoch.
func (c *Clock) Find(s State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, stopped := -s.Age, true
	if s.Epoch == c.epoch {
		at, stopped = 0, false
	}
	for _, r := range c.relations {
		if r.Epoch == s.Epoch && !r.Stopped {
			at, stopped = r.Offset, false
		}
	}
	for _, r := range s.Relations {
		c.relate(Relation{r.Epoch, r.Offset + at, r.Stopped || stopped})
	}
	if stopped {
		c.relate(Relation{s.Epoch, at, true})
	}
}

// relate adds a relation. If c already has a relation of the same epoch, relate keeps the lower
// Offset: the lower Offset implies that the other epoch was older when the present epoch began,
// and the cluster has run for at least that time.
func (c *Clock) relate(r Relation) {
	if r.Epoch == 0 || r.Epoch == c.epoch {
		return
	}
	r.Offset = min(max(r.Offset, -maxAge), maxAge)
	if i := slices.IndexFunc(c.relations, func(of Relation) bool { return of.Epoch == r.Epoch }); i >= 0 {
		if r.Offset < c.relations[i].Offset {
			c.relations[i] = r
		}
		return
	}
	c.relations = append(c.relations, r)
	if n := len(c.relations); n > MaxRelations {
		c.relations = slices.Delete(c.relations, 0, n-MaxRelations)
	}
}

func (c *Clock) forget(epoch uint64) {
	c.relations = slices.DeleteFunc(c.relations, func(r Relation) bool { return r.Epoch == epoch })
}

// Before returns how long the cluster is known to have run between a moment and the beginning of
// the present epoch. It returns 0 if the moment is not before that beginning, or cannot be
// placed.
func (c *Clock) Before(m Moment) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.relations {
		if r.Epoch == m.Epoch {
			return max(0, -m.Age-r.Offset)
		}
	}
	return 0
}

// TimeSince returns how long ago a moment was, and false if the moment cannot be placed or all nodes
// have stopped since.
func (c *Clock) TimeSince(m Moment, now int64) (ago int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	age := c.moment(now).Age
	if m.Epoch == c.epoch {
		return max(0, age-m.Age), m.Epoch != 0
	}
	for _, r := range c.relations {
		if r.Epoch == m.Epoch && !r.Stopped {
			return max(0, age-m.Age-r.Offset), true
		}
	}
	return 0, false
}
