package main

import (
	"fmt"
	"sync"
	"time"
)

// event is a line of the demo's story.
type event struct {
	at   time.Time
	what string // one word
	text string
}

// story keeps the last maxKept events. Its methods are safe for concurrent use.
type story struct {
	told *screen // prints each event when it happens; nil for no output

	mu     sync.Mutex
	begun  time.Time // the time from which the times of events are measured
	events []event
}

func (s *story) say(what, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := event{time.Now(), what, fmt.Sprintf(format, args...)}
	s.events = newest(append(s.events, e))
	if s.told != nil {
		s.told.print(e.line(s.begun), storyIndent)
	}
}

// setBegin sets the time from which the times of events are measured.
func (s *story) setBegin(begun time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = begun
}

func (s *story) lines() (all []line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		all = append(all, e.line(s.begun))
	}
	return all
}

var eventColours = map[string]colour{
	"kill": red, "failed": red, "freeze": yellow, "leave": yellow, "start": green, "thaw": green, "reload": cyan,
}

// storyIndent is the column at which the text of an event begins.
const storyIndent = 18

// line returns the event with its time since the beginning.
func (e event) line(begun time.Time) line {
	l := line{}.add(dim, fmt.Sprintf("%5.1f s  ", e.at.Sub(begun).Seconds()))
	if e.what == "phase" {
		return l.add(bold, e.text)
	}
	return l.add(eventColours[e.what], fmt.Sprintf("%-9s", e.what)).add(plain, e.text)
}
