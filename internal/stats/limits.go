package stats

import (
	"iter"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
)

const (
	// Shadows stands in the place of a source for decisions of shadows, of all sources.
	Shadows = wire.Sources
	// Others is the name that the limits beyond MaxNames are counted under. A limit that has
	// this name itself is counted with them.
	Others = "(other)"
	// MaxNames bounds the names that have counters of their own. With all of them they take
	// 13 MB.
	MaxNames = 4096

	// measuredOf is of how many decisions one is measured; see weightOf.
	measuredOf = 64
	// stripes is over how many stripes the decisions of one name are counted.
	stripes = 16
)

// Outcomes counts decisions.
type Outcomes struct{ Allowed, Denied uint64 }

// Limits are the counters of decisions by the names of limits. The zero Limits has counted
// nothing.
type Limits struct {
	// WithoutOwner is called after a decision that was made without the owner of the key, unless it
	// is nil. It is set before the first call of Of.
	WithoutOwner func()

	mu     sync.Mutex
	named  map[string]*Limit
	others Limit
}

// Limit counts the decisions of all limits of one name. It is striped by the hash of the
// key, so that checks of different keys do not share a cache line.
type Limit struct {
	stripes      [stripes]stripe
	withoutOwner func() // may be nil
}

// stripe fills whole cache lines.
type stripe struct {
	allowed, denied [Shadows + 1]atomic.Uint64 // by source, and in the last place the shadows
	_               [(64 - 2*(int(Shadows)+1)*8%64) % 64]byte
}

// Of returns the counters of a name. They stay the same for good.
func (m *Limits) Of(name string) *Limit {
	m.mu.Lock()
	defer m.mu.Unlock()
	if of := m.named[name]; of != nil {
		return of
	}
	if name == Others || len(m.named) == MaxNames {
		if m.others.withoutOwner == nil { // Decided reads it without mu
			m.others.withoutOwner = m.WithoutOwner
		}
		return &m.others
	}
	if m.named == nil {
		m.named = make(map[string]*Limit)
	}
	of := &Limit{withoutOwner: m.WithoutOwner}
	m.named[name] = of
	return of
}

// All iterates over the names and their counters, Others last. Of waits meanwhile.
func (m *Limits) All() iter.Seq2[string, *Limit] {
	return func(yield func(string, *Limit) bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for name, of := range m.named {
			if !yield(name, of) {
				return
			}
		}
		yield(Others, &m.others)
	}
}

// Decided counts a decision. It returns for how many decisions this one is to be measured,
// mostly 0.
func (m *Limit) Decided(id bucket.ID, r *wire.Result, shadow bool) (weight uint64) {
	s := &m.stripes[id.Hi%stripes]
	of := &s.denied
	if r.Allowed {
		of = &s.allowed
	}
	if shadow {
		of[Shadows].Add(1)
		return 0
	}
	weight = weightOf(of[r.Source].Add(1))
	if r.Source.IsWithoutOwner() && m.withoutOwner != nil {
		m.withoutOwner()
	}
	return weight
}

// weightOf is for how many decisions the nth of a stripe's, of one source and outcome,
// is measured. Each of the first 64 is for itself. Of the others one in 64 is, for 64:
// those whose products with the golden ratio have fractions below 1/64. So it is 34, 55
// or 89 after the one before, and all residues have their turn (Weyl), whatever the
// rhythm of the traffic; the weights sum to n, but for some hundred.
func weightOf(n uint64) uint64 {
	switch {
	case n <= measuredOf:
		return 1
	case n*0x9E3779B97F4A7C15 < 1<<58:
		return measuredOf
	}
	return 0
}

// Sum returns what was decided by a source, or of Shadows.
func (m *Limit) Sum(source wire.Source) (o Outcomes) {
	for i := range m.stripes {
		o.Allowed += m.stripes[i].allowed[source].Load()
		o.Denied += m.stripes[i].denied[source].Load()
	}
	return o
}
