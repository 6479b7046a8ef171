package audit

import (
	"encoding/hex"
	"fmt"
	"time"
)

// Record is one decision of one limit, recorded by the node that was asked. audit/README.md
// describes its JSON: fields may be added, none is renamed or removed.
type Record struct {
	Time    time.Time `json:"time"`             // when it was decided, by the node's clock of the day; UTC
	Node    string    `json:"node"`             // the Member.Name of the node that asked
	Region  string    `json:"region,omitempty"` // of that node
	Limit   string    `json:"limit"`            // its name
	Version uint64    `json:"version"`          // Limit.Version: that of the rules that it came from
	ID      ID        `json:"id"`               // what stands for the key, as Limiter.ID. Zero for a key above 1 KiB
	Key     string    `json:"key,omitempty"`    // its text, with Options.Keys alone. What is not UTF-8 in it becomes U+FFFD in JSON
	Units   int64     `json:"units"`            // as the caller gave them
	Allowed bool      `json:"allowed"`          // what this limit answered
	Shadow  bool      `json:"shadow,omitempty"` // the answer was counted and not enforced

	Source       string `json:"source"`         // where it was decided, as weir.Source spells it; "none" with an Error
	Remaining    int64  `json:"remaining"`      // Decision.Remaining
	RetryAfterMS int64  `json:"retry_after_ms"` // Decision.RetryAfter in milliseconds, rounded up

	Trace string `json:"trace,omitempty"` // what Options.Trace returned, its first 128 bytes
	Error string `json:"error,omitempty"` // of the check, its first 256 bytes; it is a denial then
}

// ID is what stands for a key of a limit. Its text is 32 hexadecimal digits.
type ID [16]byte

// String returns the digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// AppendText appends the digits.
func (id ID) AppendText(b []byte) ([]byte, error) { return hex.AppendEncode(b, id[:]), nil }

// MarshalText returns the digits.
func (id ID) MarshalText() ([]byte, error) { return id.AppendText(nil) }

// UnmarshalText reads the digits.
func (id *ID) UnmarshalText(text []byte) error {
	var read ID
	if len(text) != hex.EncodedLen(len(id)) {
		return fmt.Errorf("audit: an id of %d digits: it has 32", len(text))
	}
	if _, err := hex.Decode(read[:], text); err != nil {
		return fmt.Errorf("audit: the id %q: %w", text, err)
	}
	*id = read
	return nil
}

// milliseconds returns d in milliseconds, rounded up: a caller that waits so long is not early.
func milliseconds(d time.Duration) int64 {
	return int64(d/time.Millisecond) + min(1, int64(d%time.Millisecond))
}
