// Package stats counts the decisions of a node, measures their durations, and finds the keys that
// are asked for most.
//
// Each check of a node passes through this package, so counting takes one atomic addition (two for
// the denial of a banned key) and no lock:
//
//   - A Limiter keeps the Limit of its name and counts there. Limits has the lock, and is only used to make
//     Limiters and to read the counters.
//   - A Limit is striped, and a stripe fills whole cache lines. A field beside the counters would share
//     their cache line and slow every check.
//   - weightOf and the counters are concrete and small enough for the compiler to inline. An
//     interface between a check and its counters would cost more than counting.
//   - CountDecision selects one decision in 64 to be measured, and returns how many decisions it represents.
//     Measuring all decisions would double the cost of a check.
//   - Counters only increase. Metrics are computed from their differences.
//   - No check waits for the top keys: a check is dropped from them if they are locked.
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

// Meters contains the counters of a node. The zero Meters has counted no check. Meters is safe
// for concurrent use.
type Meters struct {
	Limits    Limits
	TopKeys   TopKeys
	BanList   BanList
	latencies [wire.Sources]histogram
	Served    atomic.Uint64 // asks of other nodes about a count or a hold that this node executed, and did not pass on
	Passed    atomic.Uint64 // asks of other nodes that this node passed on to another member
	Overdue   atomic.Uint64 // asks of other nodes that this node dropped, because they had waited here for more than twice the wait of the asking nodes
	LateUnits atomic.Uint64 // units of grants that arrived too late, and that this node refunded
	Canceled  atomic.Uint64 // checks and waits whose context was canceled before the decision
}

// CountFailure counts a check or a wait that ended with err, if its context was canceled.
func (m *Meters) CountFailure(err error) {
	if errors.Is(err, context.Canceled) {
		m.Canceled.Add(1)
	}
}

// RecordDuration records the duration of a decision that represents weight decisions.
func (m *Meters) RecordDuration(source wire.Source, took time.Duration, weight uint64) {
	m.latencies[source].add(took, weight)
}

// Latency returns the distribution of the durations of decisions with the given source. If no decision was
// measured, Count is 0.
func (m *Meters) Latency(source wire.Source) Latency { return m.latencies[source].latency() }
