package adapt

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// publishedState is the format of a State in a published value.
type publishedState struct {
	Factor  float64 `json:"factor"`
	Ceiling float64 `json:"ceiling,omitempty"`
	Reason  Reason  `json:"reason"`
	At      int64   `json:"at"` // Unix milliseconds
}

// Encode returns the part of the State that nodes share, as JSON.
func (s *State) Encode() []byte {
	value, _ := json.Marshal(publishedState{s.Factor, s.Ceiling, s.Reason, s.At.UnixMilli()}) // never fails for finite numbers and texts
	return value
}

// Follow returns s with the shared part of another node's State. A time after now is that of a clock that is ahead:
// the State then counts as changed at now.
func (s State) Follow(value []byte, now time.Time) (State, error) {
	var p publishedState
	if err := json.Unmarshal(value, &p); err != nil {
		return s, err
	}
	if !(p.Factor > 0 && p.Factor <= 1 && p.Ceiling >= 0) || math.IsInf(p.Ceiling, 0) {
		return s, fmt.Errorf("the factor is %v and the ceiling %v: use a factor above 0 and at most 1, and a ceiling of at least 0", p.Factor, p.Ceiling)
	}
	s.Factor, s.Ceiling, s.Reason, s.At = p.Factor, p.Ceiling, p.Reason, time.UnixMilli(p.At)
	if s.changed, s.step = s.At, 0; s.At.After(now) {
		s.changed = now
	}
	return s, nil
}
