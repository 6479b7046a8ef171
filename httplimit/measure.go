package httplimit

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/rules"
)

// measure is the measurement of a request that has met rules with adapt.
type measure struct {
	from    *rules.Snapshot
	rules   []*rules.Rule
	room    [1]*rules.Rule // memory of rules: most requests meet at most one rule with adapt
	started time.Time
	done    atomic.Bool // the response was recorded
	failed  atomic.Bool // a failure was recorded
	ended   atomic.Bool // the end of the request was recorded
}

// measure begins the measurement of an admitted request under its rules with adapt.
func (s *scratch) measure(m *Middleware) {
	o := &s.outcome
	for i := range o.Verdicts {
		rule := o.Verdicts[i].Rule
		if rule.Adapt == nil || i > 0 && o.Verdicts[i-1].Rule == rule {
			continue
		}
		a := s.ensureAdmission(m)
		if a.measure == nil {
			a.measure = &measure{from: o.Snapshot, started: m.now()}
			a.measure.rules = a.measure.room[:0]
		}
		a.measure.rules = append(a.measure.rules, rule)
		o.Snapshot.Meter(rule).RecordStart(a.measure.started)
	}
}

// RecordResponse records that the response to the request begins with a status of HTTP, for the
// measurements of rules with adapt. Only the first call has an effect. Wrap records the response itself, and
// End records a response that has not begun.
func (a *Admission) RecordResponse(status int) {
	if a == nil || a.measure == nil || !a.measure.done.CompareAndSwap(false, true) {
		return
	}
	failed := isFailure(status)
	a.measure.failed.Store(failed)
	now := a.m.now()
	for _, rule := range a.measure.rules {
		a.measure.from.Meter(rule).RecordDone(a.measure.started, now, rule.Adapt.Latency, failed)
	}
}

// recordEnd records the end of the request, and whether the handler failed after the response had begun. Only
// the first call has an effect.
func (a *Admission) recordEnd(failed bool) {
	if a.measure == nil || a.measure.ended.Swap(true) || !failed || a.measure.failed.Swap(true) {
		return
	}
	for _, rule := range a.measure.rules {
		a.measure.from.Meter(rule).RecordFailure()
	}
}

// isFailure reports whether a status is that of a server that fails. A client can cause a 501 by its method.
func isFailure(status int) bool {
	return status >= http.StatusInternalServerError && status != http.StatusNotImplemented
}
