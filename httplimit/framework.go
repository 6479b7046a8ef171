package httplimit

import (
	"log/slog"
	"time"

	"github.com/weir-go/weir/rules"
)

// FrameworkOptions are the Options of an adapter for a framework whose handlers get a C, such as
// *gin.Context. The zero FrameworkOptions are valid. The functions must not block, and must not
// retain the C, because the framework reuses it.
type FrameworkOptions[C any] struct {
	// Client finds the address of the client. If nil, the adapter uses that of its
	// framework.
	Client *ClientAddress

	// Key returns the text whose count a request spends from. If the text is empty or Key is nil, the
	// request spends from the count of the address of the client, or of the /64 of an IPv6 address. Key is
	// only for ByLimiter, because rules have their own keys.
	Key func(C) string

	// User, APIKey and Tier identify the caller by means that cannot be forged. They return ""
	// for an unknown caller. They are only for New.
	User, APIKey, Tier func(C) string

	Claim    func(c C, name string) string // as in Options
	Critical func(C) bool                  // as in Options

	// Skip reports whether a request is exempt from all limits.
	Skip func(C) bool

	// Denied answers a denied request, or returns an error for the framework to handle. The
	// header fields are set. Denied must not keep the Outcome. If nil, the adapter answers.
	// Denied is not called if the client has gone away.
	Denied func(C, *Outcome) error

	// OnDecision receives the Outcome of each request that met a limit, or is refused without one, for
	// example by a Block or because of its path, before the handlers run or the request is denied. It must
	// not keep the Outcome.
	OnDecision func(C, *Outcome)

	OnWarn func(*Verdict) // as in Options

	// Count, Reserve and Settle are as in Options. Count and Settle are called when the handlers
	// return, or when a hijacked connection is closed if that is earlier. A connection that outlives
	// the handlers is still open then, and fiber has not yet sent a stream.
	Count   func(C, *rules.Rule, *Ended) bool
	Reserve func(C, *rules.Rule) (units int64, ok bool)
	Settle  func(C, *rules.Rule, *Ended) (units int64, ok bool)

	MaxBody    int64         // as in Options; fiber has Config.BodyLimit instead
	Queue      time.Duration // as in Options
	MaxWaiting int           // as in Options

	KeepOutcome          bool // as in Options; OutcomeOf reads it from the request's context
	NoXHeaders           bool // as in Options
	NoIETFHeaders        bool // as in Options
	RefuseAmbiguousPaths bool // as in Options

	Logger *slog.Logger // slog.Default if nil. It never receives a key
}
