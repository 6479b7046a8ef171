package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// event is a line of the demo's story.
type event struct {
	at   time.Time
	what string // one word
	text string
}

// story is what has happened so far, of which it keeps maxKept events. Its methods are safe for concurrent use.
type story struct {
	told *screen // where each event is told as it happens; nil for nowhere

	mu     sync.Mutex
	begun  time.Time // what the times of events are told from
	events []event
}

// say announces an event.
func (s *story) say(what, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := event{time.Now(), what, fmt.Sprintf(format, args...)}
	s.events = append(s.events[max(0, len(s.events)+1-maxKept):], e)
	if s.told != nil {
		s.told.say(e.line(s.begun).render(s.told.palette, 1000))
	}
}

// from sets the moment that the times of events are told from.
func (s *story) from(begun time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = begun
}

// latest returns the last events, at most maxKept.
func (s *story) latest() []event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

var eventColours = map[string]colour{
	"kill": red, "failed": red, "freeze": yellow, "leave": yellow, "busy": yellow, "start": green, "thaw": green, "reload": cyan, "admin": cyan,
}

// line is the event with its time from the beginning.
func (e event) line(begun time.Time) line {
	at := fmt.Sprintf("%5.1f s  ", e.at.Sub(begun).Seconds())
	switch e.what {
	case "phase":
		return line{}.add(dim, at).add(bold, e.text)
	case "":
		return line{}.add(dim, at+strings.Repeat(" ", 8)+e.text)
	}
	return line{}.add(plain, at).add(eventColours[e.what], fmt.Sprintf("%-8s", e.what)).add(plain, e.text)
}
