package weir

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
)

const (
	// OtherLimits is the name in Stats.Limits of the limits whose names came after the first
	// 4,096. A limit that has this name itself is counted with them.
	OtherLimits = "(other)"
	// maxMetered bounds the names of limits that have counters of their own. With all of
	// them they take 13 MB.
	maxMetered = 4096
	// measuredOf is of how many decisions one is measured; see weightOf.
	measuredOf = 64
	// meterStripes is over how many stripes the decisions of one limit are counted.
	meterStripes = 16
)

// meters are the counters of a node.
type meters struct {
	limits    limitMeters
	latencies [wire.Sources]histogram
	served    atomic.Uint64
	passed    atomic.Uint64
	overdue   atomic.Uint64
	lateUnits atomic.Uint64
	canceled  atomic.Uint64
}

// gaveUp counts a check whose context was canceled before it was decided.
func (m *meters) gaveUp(err error) {
	if errors.Is(err, context.Canceled) {
		m.canceled.Add(1)
	}
}

// limitMeters are the counters of decisions, by the names of limits. A check does not
// pass them: its Limiter has those of its own limit.
type limitMeters struct {
	mu     sync.Mutex
	named  map[string]*limitMeter
	others limitMeter // of OtherLimits
}

// limitMeter counts the decisions of all limits of one name. It is striped by id so that
// checks of different keys do not share a cache line.
type limitMeter struct{ stripes [meterStripes]stripe }

// stripe fills whole cache lines.
type stripe struct {
	allowed, denied [wire.Sources + 1]atomic.Uint64 // by source, and in the last place the shadows
	_               [(64 - 2*(int(wire.Sources)+1)*8%64) % 64]byte
}

// of is the counters of a name.
func (m *limitMeters) of(name string) *limitMeter {
	m.mu.Lock()
	defer m.mu.Unlock()
	if of := m.named[name]; of != nil {
		return of
	}
	if name == OtherLimits || len(m.named) == maxMetered {
		return &m.others
	}
	if m.named == nil {
		m.named = make(map[string]*limitMeter)
	}
	of := new(limitMeter)
	m.named[name] = of
	return of
}

// all calls f with the counters of each name, those of OtherLimits last.
func (m *limitMeters) all(f func(name string, of *limitMeter)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, of := range m.named {
		f(name, of)
	}
	f(OtherLimits, &m.others)
}

// decided counts a decision, and returns for how many it is to be measured, mostly 0.
func (m *limitMeter) decided(id bucket.ID, r *wire.Result, shadow bool) (weight uint64) {
	s := &m.stripes[id.Hi%meterStripes]
	of := &s.denied
	if r.Allowed {
		of = &s.allowed
	}
	if shadow {
		of[wire.Sources].Add(1)
		return 0
	}
	return weightOf(of[r.Source].Add(1))
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

func (m *limitMeter) sum(of Source) (o Outcomes) {
	for i := range m.stripes {
		o.Allowed += m.stripes[i].allowed[of].Load()
		o.Denied += m.stripes[i].denied[of].Load()
	}
	return o
}

// decisions adds to s what has been decided.
func (m *limitMeters) decisions(s *Stats) {
	s.Decisions, s.Limits = make(map[Source]Outcomes), make(map[string]map[Source]Outcomes)
	m.all(func(name string, limit *limitMeter) {
		for source := Owner; source <= Leased; source++ {
			o := limit.sum(source)
			if o == (Outcomes{}) {
				continue
			}
			if s.Limits[name] == nil {
				s.Limits[name] = make(map[Source]Outcomes)
			}
			s.Limits[name][source] = o
			all := s.Decisions[source]
			all.add(o)
			s.Decisions[source] = all
		}
		s.Shadows.add(limit.sum(Source(wire.Sources)))
	})
}
