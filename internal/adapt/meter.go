package adapt

import (
	"sync"
	"time"
)

// Meter counts the requests to a rule on a node. The zero Meter has measured none. A Meter is safe for
// concurrent use. Its methods do not allocate.
type Meter struct {
	mu   sync.Mutex
	sum  Sample    // measurements since the last call of TakeSample
	open int64     // requests that have started, and are not done
	at   time.Time // time until which sum.Busy is complete
}

// RecordStart counts an admitted request. The caller must call RecordDone for the request later.
func (m *Meter) RecordStart(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(now)
	m.open++
	m.sum.Started++
}

// RecordDone counts a request whose response begins now, or that ends now without a response. The request is slow
// if the time since it started is above latency.
func (m *Meter) RecordDone(started, now time.Time, latency time.Duration, failed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(now)
	m.open--
	m.sum.Done++
	if now.Sub(started) > latency {
		m.sum.Slow++
	}
	if failed {
		m.sum.Failed++
	}
}

// RecordFailure counts a request that fails after its response has begun.
func (m *Meter) RecordFailure() { m.count(&m.sum.Failed) }

// RecordDenial counts a denied request.
func (m *Meter) RecordDenial() { m.count(&m.sum.Denied) }

func (m *Meter) count(n *int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*n++
}

// TakeSample returns the measurements since the last call.
func (m *Meter) TakeSample(now time.Time) Sample {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(now)
	sum := m.sum
	m.sum = Sample{}
	return sum
}

// advance adds the time of the open requests until now. The caller must hold mu.
func (m *Meter) advance(now time.Time) {
	if d := now.Sub(m.at); d > 0 {
		m.sum.Busy += d * time.Duration(m.open)
		m.at = now
	}
}
