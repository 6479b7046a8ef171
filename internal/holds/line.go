package holds

import (
	"slices"
	"time"

	"github.com/weir-go/weir/bucket"
)

const (
	// waitsFor is how long a place in a line is kept for a hold that is not asked for again.
	waitsFor = 150 * time.Millisecond
	// longestLine bounds a line. Holds that find it full wait in no order.
	longestLine = 1024
)

// lines are the holds that wait for a count, in the order in which they were first asked
// for. Each node asks for one at a time, so that nodes take turns.
type lines map[bucket.ID][]place

// place is that of one hold. It has no units: what waits has a turn, and nothing else.
type place struct {
	of    ref
	seen  int64 // when it was last asked for
	pause int64 // between the last two times; waitsFor after the first one
}

// isSilent reports whether a hold is not asked for as often as it was. It keeps its place, and
// others need not wait for it.
func (p *place) isSilent(now int64) bool { return now-p.seen > 2*p.pause+int64(denyFor) }

// first reports whether a hold is the first of those that wait for its count, or no other waits
// that is still asked for.
func (l lines) first(of ref, now int64) bool {
	line := l[of.id]
	for len(line) > 0 && now-line[0].seen > int64(waitsFor) {
		line = line[1:]
	}
	l.keep(of.id, line)
	for i := range line {
		if line[i].of == of {
			return true
		}
		if !line[i].isSilent(now) {
			return false
		}
	}
	return true
}

// wait gives a hold a place in the line, or keeps the one that it has.
func (l *lines) wait(of ref, now int64) {
	line := (*l)[of.id]
	if i := slices.IndexFunc(line, func(p place) bool { return p.of == of }); i >= 0 {
		line[i].pause, line[i].seen = now-line[i].seen, now
		return
	}
	if len(line) < longestLine {
		if *l == nil {
			*l = make(lines)
		}
		(*l)[of.id] = append(line, place{of, now, int64(waitsFor)})
	}
}

// leave takes a hold out of the line.
func (l lines) leave(of ref) {
	if line := l[of.id]; len(line) > 0 {
		l.keep(of.id, slices.DeleteFunc(line, func(p place) bool { return p.of == of }))
	}
}

// any reports whether something waits for a count.
func (l lines) any(id bucket.ID) bool { return len(l[id]) > 0 }

func (l lines) keep(id bucket.ID, line []place) {
	if len(line) > 0 {
		l[id] = line
	} else {
		delete(l, id)
	}
}

// sweepLines bounds the lines that are looked at under one lock.
const sweepLines = 64

// sweep forgets lines in which nothing has waited for long, and returns what they are of. It
// looks at some, each time at others, as a map has no order.
func (l lines) sweep(now int64) (over []bucket.ID) {
	looked := 0
	for id, line := range l {
		if looked++; looked > sweepLines {
			break
		}
		if now-line[len(line)-1].seen > int64(waitsFor) {
			delete(l, id)
			over = append(over, id)
		}
	}
	return over
}
