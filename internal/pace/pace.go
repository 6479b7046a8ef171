// Package pace spaces the lines of a log that could repeat with traffic, or in a loop.
package pace

import (
	"sync"
	"time"
)

// Every is how often a line that could repeat is logged at most.
const Every = 10 * time.Second

// Pace is of one line. The zero Pace has the first one logged. It is safe for concurrent
// use.
type Pace struct {
	mu       sync.Mutex
	last     time.Time
	unlogged uint64
}

// Due reports whether the line is to be logged now, and how many like it were not since
// one was. A clock that is behind the last line has it logged.
func (p *Pace) Due(now time.Time) (unlogged uint64, due bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if since := now.Sub(p.last); !p.last.IsZero() && since >= 0 && since < Every {
		p.unlogged++
		return 0, false
	}
	unlogged, p.unlogged, p.last = p.unlogged, 0, now
	return unlogged, true
}
