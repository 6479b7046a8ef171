// Package loglimit limits the rate of log messages that may be repeated many times.
package loglimit

import (
	"sync"
	"time"
)

// Every is the minimum time between two lines of the same kind.
const Every = 10 * time.Second

// Line limits the rate of log lines of the same kind. The first line of the zero Line is due. A Line
// is safe for concurrent use.
type Line struct {
	mu       sync.Mutex
	last     time.Time
	unlogged uint64
}

// Due reports whether a line is due at the time now. For a line that is due, unlogged is the number of lines
// that were dropped since the last logged line. If now is before the last logged line, the line is due.
func (p *Line) Due(now time.Time) (unlogged uint64, due bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if since := now.Sub(p.last); !p.last.IsZero() && since >= 0 && since < Every {
		p.unlogged++
		return 0, false
	}
	unlogged, p.unlogged, p.last = p.unlogged, 0, now
	return unlogged, true
}
