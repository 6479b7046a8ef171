package stats

import (
	"iter"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
)

const (
	// Shadows is the index of the counters of shadows, in place of a source. They count the decisions of all sources.
	Shadows = wire.Sources
	// Others is the name under which the limits beyond MaxNames are counted. A limit with this name
	// is counted with them.
	Others = "(other)"
	// Uncounted is the name of a limit whose counts carry messages between nodes. No user makes its
	// decisions, so no statistics include them. No rule can have this name.
	Uncounted = "/weir/adapt"
	// MaxNames is the maximum number of names with counters of their own. The counters of MaxNames
	// names take 13 MB.
	MaxNames = 4096

	// measuredOf is the number of decisions of which one is measured; see weightOf.
	measuredOf = 64
	// stripes is the number of stripes of the counters of a name.
	stripes = 16
)

// Outcomes counts decisions.
type Outcomes struct{ Allowed, Denied uint64 }

// Limits contains the counters of the limits of a node, by name. The zero Limits has counted no
// decision.
type Limits struct {
	// WithoutOwner, unless it is nil, is called after each decision without the owner of the key. It is not
	// called for shadows. It must be set before the first call of CountersOf.
	WithoutOwner func()

	mu     sync.Mutex
	named  map[string]*Limit
	others Limit

	uncounted Limit // the counters of the name Uncounted, which no method reads
}

// Limit counts the decisions of all limits that have the same name. It is striped by the hash of the
// key, so that checks of different keys do not share a cache line.
type Limit struct {
	stripes      [stripes]stripe
	withoutOwner func()        // may be nil
	BansBegun    atomic.Uint64 // bans that callers of this node have begun
	Banned       atomic.Uint64 // decisions that denied a banned key, which the denials include
}

// stripe fills whole cache lines.
type stripe struct {
	allowed, denied [Shadows + 1]atomic.Uint64 // indexed by source; the last counter is that of shadows
	_               [(64 - 2*(int(Shadows)+1)*8%64) % 64]byte
}

// CountersOf returns the counters of a name. All calls with the same name return the same Limit.
// All names beyond MaxNames share a Limit.
func (m *Limits) CountersOf(name string) *Limit {
	m.mu.Lock()
	defer m.mu.Unlock()
	if name == Uncounted {
		return &m.uncounted
	}
	if of := m.named[name]; of != nil {
		return of
	}
	if name == Others || len(m.named) == MaxNames {
		if m.others.withoutOwner == nil { // CountDecision reads it without mu
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

// AllCounters iterates over the names and their counters, without Uncounted, and with Others last.
// Calls of CountersOf wait until the iteration ends.
func (m *Limits) AllCounters() iter.Seq2[string, *Limit] {
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

// CountDecision counts a decision. It returns the number of decisions that the measurement of this
// decision represents. For most decisions the result is 0, and the decision is not measured.
func (m *Limit) CountDecision(id bucket.ID, r *wire.Result, shadow bool) (weight uint64) {
	s := &m.stripes[id.Hi%stripes]
	of := &s.denied
	if r.Allowed {
		of = &s.allowed
	} else if r.Banned && !r.Paused && !shadow {
		m.Banned.Add(1)
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

// weightOf returns the number of decisions that the nth decision of a stripe represents, for one
// source and outcome. Each of the first 64 decisions represents itself. Of the later decisions,
// one in 64 represents 64 decisions: a decision whose number, multiplied by the golden ratio, has
// a fraction below 1/64. Such numbers are 34, 55 or 89 apart, and have all residues (Weyl), so the
// rhythm of the traffic does not matter. The weights sum to n, except for a few hundred.
func weightOf(n uint64) uint64 {
	switch {
	case n <= measuredOf:
		return 1
	case n*0x9E3779B97F4A7C15 < 1<<58:
		return measuredOf
	}
	return 0
}

// Sum returns the decisions of a source, or of Shadows.
func (m *Limit) Sum(source wire.Source) (o Outcomes) {
	for i := range m.stripes {
		o.Allowed += m.stripes[i].allowed[source].Load()
		o.Denied += m.stripes[i].denied[source].Load()
	}
	return o
}
