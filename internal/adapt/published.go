package adapt

import (
	"encoding/json"
	"fmt"
	"time"
)

// Encode returns the part of the State that nodes share, as JSON.
func (s *State) Encode() []byte {
	value, _ := json.Marshal(s) // never fails for finite numbers, texts and the present time
	return value
}

// Follow returns s with the shared part of another node's State. If the time of the last change is after now,
// because the clock of the other node is ahead, the State counts as changed at the time now.
func (s State) Follow(value []byte, now time.Time) (State, error) {
	next := s
	next.Factor, next.Ceiling, next.Reason, next.At, next.Until = 0, 0, Unchanged, time.Time{}, time.Time{}
	if err := json.Unmarshal(value, &next); err != nil {
		return s, err
	}
	if !(next.Factor > 0 && next.Factor <= 1 && next.Ceiling >= 0) {
		return s, fmt.Errorf("the factor is %v and the ceiling %v: use a factor above 0 and at most 1, and a ceiling of at least 0", next.Factor, next.Ceiling)
	}
	if next.changed, next.step = next.At, 0; next.At.After(now) {
		next.changed = now
	}
	return next, nil
}
