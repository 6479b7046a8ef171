package adapt

import "math"

// totals is a Sample that is smoothed if it has few requests.
type totals struct {
	started, done, slow, failed, denied float64
	busy                                float64 // seconds
}

// enough is the number of requests from which a Sample replaces the earlier Samples completely.
const enough = 50

// merge adds a Sample to t. If the Sample has fewer than about enough (50) requests, t keeps a part
// of the earlier Samples.
func (t *totals) merge(m Sample) {
	w := min(1, float64(max(m.Done, m.Started)+1)/enough)
	add := func(sum *float64, now float64) { *sum += w * (now - *sum) }
	add(&t.started, float64(m.Started))
	add(&t.done, float64(m.Done))
	add(&t.slow, float64(m.Slow))
	add(&t.failed, float64(m.Failed))
	add(&t.denied, float64(m.Denied))
	add(&t.busy, m.Busy.Seconds())
}

// latency returns the mean latency of the requests in flight in seconds, by Little's law. The result rises with a
// queue, before the queued requests end. While the demand rises, few requests have ended, so the result depends on
// the number of started requests.
func (t *totals) latency() float64 { return t.busy / max(t.done, 0.6*t.started, 1) }

// grows reports whether the number of requests in flight grows by more than chance explains.
func (t *totals) grows() bool { return t.started > growing*t.done+noise*math.Sqrt(t.done) }

// completed returns an upper bound of the part of the started requests that the backend completes. The bound is
// higher for a smaller number of requests.
func (t *totals) completed() float64 {
	return (max(t.done-t.failed, 0) + noise*math.Sqrt(t.started)) / max(t.started, 1)
}

// isAbove reports whether the part of n requests is significantly above the bound.
func isAbove(part, n, bound float64) bool {
	return part > bound*n+2*math.Sqrt(bound*n)+1
}
