package audit

import (
	"encoding/hex"
	"fmt"
	"time"
)

// Record is the decision of a limit, recorded by the node whose caller made the check.
// Its JSON omits some fields that are zero. Fields may be added, but are never renamed or
// removed.
type Record struct {
	Time    time.Time `json:"time"`             // time at which the check ended, by the clock of the node; RFC 3339 in UTC
	Node    string    `json:"node"`             // Member.Name of the node, which is new at each start
	Region  string    `json:"region,omitempty"` // region of the node
	Limit   string    `json:"limit"`            // name of the limit
	Version uint64    `json:"version"`          // Limit.Version
	ID      ID        `json:"id"`               // Limiter.ID of the key. Zero for a key above 1 KiB
	Key     string    `json:"key,omitempty"`    // text of the key, only with Options.Keys; empty for a key above 1 KiB. JSON has U+FFFD for bytes that are not UTF-8
	Units   int64     `json:"units"`            // units that the check asked for

	Operation string `json:"operation"`          // weir.DecisionEvent.Operation: take, at_most, reserve, debit, wait or hold
	Request   uint64 `json:"request,omitempty"`  // number of the AllowAll on this node, the same in the records of all its Asks; 0 for an AllowAll of one Ask and for other checks
	Asks      int    `json:"asks,omitempty"`     // number of Asks of the AllowAll
	Refused   bool   `json:"refused,omitempty"`  // a limit of the AllowAll denied, so no units were spent, or the AllowAll failed
	Critical  bool   `json:"critical,omitempty"` // the check may spend the kept units (weir.Limit.Keep)

	Allowed bool `json:"allowed"`          // decision of this limit
	Shadow  bool `json:"shadow,omitempty"` // the decision was counted and not enforced
	Banned  bool `json:"banned,omitempty"` // the key was banned (weir.Limit.Ban)
	Paused  bool `json:"paused,omitempty"` // the key was paused (weir.Limiter.Pause)

	Algorithm  string `json:"algorithm"`            // name of the weir.Algorithm
	Rate       int64  `json:"rate"`                 // Limit.Rate
	Per        string `json:"per,omitempty"`        // Limit.Per, like "1m30s"
	Burst      int64  `json:"burst,omitempty"`      // Limit.Burst, if it is not the Rate
	Keep       int64  `json:"keep,omitempty"`       // Limit.Keep
	Calendar   string `json:"calendar,omitempty"`   // name of Limit.Calendar
	Overridden bool   `json:"overridden,omitempty"` // the numbers are those of an operator for this key
	Factor     int64  `json:"factor,omitempty"`     // Limit.Factor: the percentage of the numbers that a rule with "adapt" grants
	Capacity   int64  `json:"capacity"`             // Decision.Limit: units that the limit, or the share of the node, grants
	Used       int64  `json:"used"`                 // Capacity minus Remaining, and 0 if that is negative

	Source       string `json:"source"`         // name of the weir.Source; "none" if there was no decision: the AllowAll did not ask this limit, or there is an Error. If a Wait ends with an Error after its queue has received a decision, the Source is that of the decision
	Remaining    int64  `json:"remaining"`      // Decision.Remaining
	RetryAfterMS int64  `json:"retry_after_ms"` // Decision.RetryAfter in milliseconds, rounded up: the time until the same request could be admitted

	Decided time.Time `json:"decided,omitzero"` // DecisionEvent.At: time of the decision, or of the loan of a lease, by the clock of the node that decided
	TookUS  int64     `json:"took_us"`          // DecisionEvent.Took in microseconds

	Route  string `json:"route,omitempty"`      // weir.Caller.Route, first 128 bytes: method and pattern of the route or of the rule, the gRPC method, or Envoy's domain. Never a path with values
	Client string `json:"client,omitempty"`     // network of the address of the client: /24, /48 for IPv6, or /40 for 6to4. With Options.Clients the address
	Agent  string `json:"user_agent,omitempty"` // first 8 products in the User-Agent with their main versions. With Options.Clients its first 256 bytes
	Tier   string `json:"tier,omitempty"`       // weir.Caller.Tier, first 64 bytes

	Sample float64 `json:"sample"` // Options.Sample: the part of the keys of which all decisions are recorded

	Trace string `json:"trace,omitempty"` // first 128 bytes of the result of Options.Trace
	Error string `json:"error,omitempty"` // first 256 bytes of the error of the check. A check with an error counts as a denial
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
		return fmt.Errorf("audit: the id has %d bytes: use 32 hexadecimal digits", len(text))
	}
	if _, err := hex.Decode(read[:], text); err != nil {
		return fmt.Errorf("audit: the id %q is not hexadecimal: %w", text, err)
	}
	*id = read
	return nil
}

// milliseconds returns d in milliseconds. It rounds up, so that a caller that waits for this
// time is not early.
func milliseconds(d time.Duration) int64 {
	return int64(d/time.Millisecond) + min(1, int64(d%time.Millisecond))
}
