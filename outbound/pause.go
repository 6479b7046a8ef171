package outbound

import (
	"context"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/ratelimit"
)

// pauseTimeout bounds how long Pause waits for the owner of the key.
const pauseTimeout = time.Second

// PauseBy calls Pause with the time in the header of a response that refused a request: the time of Retry-After
// or, without this field, the time until all limits in the field RateLimit have units again. It returns the
// length of the pause, at most Options.MaxPause, or 0 if the header has no time or t is nil. Without a time there
// is no pause: the request may have been refused for its content, and a default, such as 60 s for each 429, would
// stop all other requests.
func (t *Turn) PauseBy(ctx context.Context, header http.Header) time.Duration {
	if t == nil {
		return 0
	}
	d := min(delayOf(header, time.Now()), t.gate.o.MaxPause)
	t.Pause(ctx, d)
	return d
}

// Pause stops the requests of the host and the credential on all nodes for d, but at most for Options.MaxPause.
// If there are several pauses, the host is paused until all of them have ended. This node stops at once.
// Another node stops when its next request for turns reaches the owner of the key. Pause does nothing if t is
// nil or d is not positive.
func (t *Turn) Pause(ctx context.Context, d time.Duration) {
	if t == nil || d <= 0 {
		return
	}
	l := t.limit
	d = max(min(d, t.gate.o.MaxPause), time.Millisecond)
	if !l.pauses.extend(t.key, d) {
		return
	}
	l.paused.Add(1)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pauseTimeout) // the request may have ended
	defer cancel()
	err := l.limiter.Pause(ctx, t.key, d)
	if unlogged, due := l.logged.Due(time.Now()); due {
		args := []any{"host", t.host, "limit", l.name, "for", d, "unlogged", unlogged}
		if err != nil {
			args = append(args, "error", err)
		}
		t.gate.o.Logger.Warn("another service refused a request; requests to it wait", args...)
	}
}

// delayOf returns the time for which a refused client must wait according to the header of a response, or 0 if
// the header has no time.
func delayOf(header http.Header, now time.Time) time.Duration {
	if header.Get("Retry-After") == "" {
		return ratelimit.ExhaustedFor(header[ratelimit.StateField])
	}
	return ratelimit.RetryAfter(header, now)
}

// mostPauses is the maximum number of keys whose pauses a process remembers for a limit.
const mostPauses = 4096

// pauses has the ends of the pauses that this process has begun, for at most mostPauses keys. The process must remember the pauses, because a
// turn that the owner granted earlier may arrive during a pause.
type pauses struct {
	mu    sync.Mutex
	until map[string]time.Time // end of the pause by key
}

// extend pauses a key for d. It returns false, and changes nothing, if the key is already paused for d or longer.
func (p *pauses) extend(key string, d time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	end := now.Add(d)
	if !end.After(p.until[key]) {
		return false
	}
	if len(p.until) >= mostPauses {
		maps.DeleteFunc(p.until, func(_ string, end time.Time) bool { return !end.After(now) })
	}
	if len(p.until) < mostPauses {
		p.until[key] = end
	}
	return true
}

// findRest returns the rest of the pause of a key. The rest is not positive if the key is not paused.
func (p *pauses) findRest(key string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Until(p.until[key])
}
