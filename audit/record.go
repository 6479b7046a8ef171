package audit

import (
	"encoding/hex"
	"fmt"
	"time"
)

// Record is the decision of a limit, recorded by the node whose caller made the check.
// audit/README.md describes its JSON. Fields may be added, but are never renamed or
// removed.
type Record struct {
	Time    time.Time `json:"time"`             // time of the decision, by the clock of the node; UTC
	Node    string    `json:"node"`             // Member.Name of the node
	Region  string    `json:"region,omitempty"` // region of the node
	Limit   string    `json:"limit"`            // name of the limit
	Version uint64    `json:"version"`          // Limit.Version
	ID      ID        `json:"id"`               // Limiter.ID of the key. Zero for a key above 1 KiB
	Key     string    `json:"key,omitempty"`    // text of the key, only with Options.Keys. JSON has U+FFFD for bytes that are not UTF-8
	Units   int64     `json:"units"`            // units that the check asked for
	Allowed bool      `json:"allowed"`          // decision of this limit
	Shadow  bool      `json:"shadow,omitempty"` // the decision was counted and not enforced
	Banned  bool      `json:"banned,omitempty"` // the key was banned (weir.Limit.Ban)

	Source       string `json:"source"`         // name of the weir.Source. "none" for a part of an AllowAll that was not asked, and with an Error, unless a Wait ended in a queue that had received a decision
	Remaining    int64  `json:"remaining"`      // Decision.Remaining
	RetryAfterMS int64  `json:"retry_after_ms"` // Decision.RetryAfter in milliseconds, rounded up

	Trace string `json:"trace,omitempty"` // first 128 bytes of the result of Options.Trace
	Error string `json:"error,omitempty"` // first 256 bytes of the error of the check, which is a denial
}

// ID is the ID of a key of a limit. Its text is 32 hexadecimal digits.
type ID [16]byte

// String returns the hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// AppendText appends the hexadecimal digits.
func (id ID) AppendText(b []byte) ([]byte, error) { return hex.AppendEncode(b, id[:]), nil }

// MarshalText returns the hexadecimal digits.
func (id ID) MarshalText() ([]byte, error) { return id.AppendText(nil) }

// UnmarshalText reads 32 hexadecimal digits.
func (id *ID) UnmarshalText(text []byte) error {
	var read ID
	if len(text) != hex.EncodedLen(len(id)) {
		return fmt.Errorf("audit: the id has %d digits: use 32", len(text))
	}
	if _, err := hex.Decode(read[:], text); err != nil {
		return fmt.Errorf("audit: the id %q: %w", text, err)
	}
	*id = read
	return nil
}

// milliseconds returns d in milliseconds, rounded up, so that a caller that waits for this time
// is not early.
func milliseconds(d time.Duration) int64 {
	return int64(d/time.Millisecond) + min(1, int64(d%time.Millisecond))
}
