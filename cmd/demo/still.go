package main

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

// What a run measures of the machine: a sleep of stillInterval that ends late by more than
// stillSlack is a time when the machine stood still. What takes long for that reason alone
// is no stall.
const (
	stillInterval = 10 * time.Millisecond
	stillSlack    = 20 * time.Millisecond
)

// stillness is when a gateway's process stood still: it was late, and cores did not work
// for it. Other programs had them. It is safe for concurrent use.
type stillness struct {
	mu    sync.Mutex
	spans []span // in the order of time, and apart
}

// add takes in pairs of Unix nanoseconds.
func (s *stillness) add(told [][2]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range told {
		s.spans = append(s.spans, span{one[0], one[1]})
	}
}

// gatewaysStill returns when some gateway of the fleet stood still, in the order of time,
// and apart.
func (f *fleet) gatewaysStill() (apart []span) {
	f.mu.Lock()
	all := slices.Clone(f.all)
	f.mu.Unlock()
	var spans []span
	for _, inc := range all {
		spans = append(spans, inc.still.all()...)
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for _, s := range spans {
		if last := len(apart) - 1; last >= 0 && s.from <= apart[last].to {
			apart[last].to = max(apart[last].to, s.to)
		} else {
			apart = append(apart, s)
		}
	}
	return apart
}

// all returns when the gateway stood still.
func (s *stillness) all() []span {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.spans)
}

// within returns the parts of these spans that are in another one. They are in the order of
// time, and apart.
func within(in span, spans []span) (parts []span) {
	first, _ := slices.BinarySearchFunc(spans, in.from, func(s span, from int64) int { return cmp.Compare(s.to, from) })
	for _, s := range spans[first:] {
		if s.from > in.to {
			break
		}
		if part := (span{max(s.from, in.from), min(s.to, in.to)}); part.to > part.from {
			parts = append(parts, part)
		}
	}
	return parts
}

// unsettled returns for how long a check may have changed counts that was answered without
// the one to ask while a gateway stood still; false if none did. What it asked for comes
// late then, and is given back when the answer arrives. A copy gives back the newest units,
// whichever these are. still is when gateways stood still.
func unsettled(check span, still []span) (span, bool) {
	if len(within(check, still)) == 0 {
		return span{}, false
	}
	until := check.to + int64(healed)
	for _, part := range within(span{check.from, never}, still) {
		if part.from > until {
			break
		}
		until = max(until, part.to+int64(healed))
	}
	return span{check.from, until}, true
}

// besides returns for how much of these parts, which are apart, the demo did not stand still.
func besides(l *lab.Lateness, parts []span) (sum time.Duration) {
	for _, p := range parts {
		sum += time.Duration(p.to-p.from) - stoodStill(l, p)
	}
	return sum
}

// stoodStill returns for how much of a span the machine stood still.
func stoodStill(l *lab.Lateness, s span) time.Duration {
	return l.Within(time.Unix(0, s.from), time.Unix(0, s.to))
}

// stalls returns how many of these took longer than a bound, and not because the demo or
// the gateway stood still.
func stalls(l *lab.Lateness, all []slow, bound time.Duration) int {
	n := 0
	for _, s := range all {
		own := s.took - stoodStill(l, s.span)
		if s.to != nil {
			own -= besides(l, within(s.span, s.to.still.all()))
		}
		if own > bound {
			n++
		}
	}
	return n
}

// watch is a gateway's own measurement: it sleeps for stillInterval at a time.
type watch struct {
	mu    sync.Mutex
	last  int64         // Unix nanoseconds
	usage time.Duration // lab.CPU then
	still []span        // since it was told last
}

// keep measures until ctx is done.
func (w *watch) keep(ctx context.Context) {
	tick := time.NewTimer(stillInterval)
	defer tick.Stop()
	w.note(time.Now().UnixNano(), lab.CPU())
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		w.note(time.Now().UnixNano(), lab.CPU())
		tick.Reset(stillInterval)
	}
}

// note takes in that a sleep has ended, or the first begins. Where cores have worked for the
// process meanwhile, it may have kept itself from waking: that is not to be excused.
func (w *watch) note(now int64, usage time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if still := (span{w.last + int64(stillInterval+usage-w.usage), now}); w.last != 0 && still.to-still.from > int64(stillSlack) {
		w.still = append(w.still, still)
	}
	w.last, w.usage = now, usage
}

// tell returns what is to be told, as pairs of Unix nanoseconds.
func (w *watch) tell() (still [][2]int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.still {
		still = append(still, [2]int64{s.from, s.to})
	}
	w.still = nil
	return still
}
