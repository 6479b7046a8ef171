// Package stats counts what a node decides, measures how long that took, and finds the keys
// that are asked for most.
//
// Each check of a node passes it, so that counting takes one atomic addition and no lock:
//
//   - A Limiter keeps the Limit of its name and counts there. Limits has the lock, and is for
//     whatever makes Limiters and whatever reads the counters.
//   - A Limit is striped, and a stripe fills whole cache lines. Fields that are added to it
//     beside the counters share their cache line and slow every check.
//   - Decided, weightOf and the counters are concrete and small enough for the compiler to
//     inline. An interface between a check and its counters would cost more than counting.
//   - Decided selects one decision in 64 to be measured, and says for how many it stands.
//     Measuring all of them would double the cost of a check.
//   - Counters only grow. Metrics are made of their differences.
//   - No check waits for the top keys: what finds them busy is dropped, and counted.
//
// Time is an argument.
package stats

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/wire"
)

// Meters are the counters of a node. The zero Meters has counted nothing. It is safe for
// concurrent use.
type Meters struct {
	Limits    Limits
	TopKeys   TopKeys
	latencies [wire.Sources]histogram
	Served    atomic.Uint64 // checks that others made here
	Passed    atomic.Uint64 // checks that came here and were passed on
	Overdue   atomic.Uint64 // checks that came here and were dropped, as they had waited too long
	LateUnits atomic.Uint64 // units of answers that came too late
	Canceled  atomic.Uint64 // checks whose context was canceled before they were decided
}

// Failed counts a check that ended with an error, if its context was canceled.
func (m *Meters) Failed(err error) {
	if errors.Is(err, context.Canceled) {
		m.Canceled.Add(1)
	}
}

// Took measures a decision that stands for weight of them.
func (m *Meters) Took(source wire.Source, took time.Duration, weight uint64) {
	m.latencies[source].add(took, weight)
}

// Latency returns how long the decisions of a source took. It has a Count of 0 if none was
// measured.
func (m *Meters) Latency(source wire.Source) Latency { return m.latencies[source].latency() }
