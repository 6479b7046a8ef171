package adapt

import "time"

// Sample has the measurements of a span of time, such as the last second.
type Sample struct {
	Started int64         // requests that were admitted
	Done    int64         // requests whose response began, or that ended without a response
	Slow    int64         // requests among Done that took longer than the latency of the rule
	Failed  int64         // requests that failed in the backend, before or after the response began
	Denied  int64         // requests that the rule denied
	Busy    time.Duration // time in the span, summed over the requests in flight
}

// IsEmpty reports whether nothing was measured.
func (s Sample) IsEmpty() bool { return s == Sample{} }
