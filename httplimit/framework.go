package httplimit

import (
	"log/slog"
	"time"

	"github.com/weir-go/weir/rules"
)

// FrameworkOptions are the Options of an adapter for a framework whose handlers get a C, such as
// *gin.Context. The zero FrameworkOptions are valid. Its functions must not block. The framework
// uses a C again, so that they must not keep it.
type FrameworkOptions[C any] struct {
	// Client finds the address that a request comes from. If it is nil, the adapter asks its
	// framework.
	Client *ClientAddress

	// Key returns the text whose count a request spends from. If it is empty or Key is nil,
	// the request spends from the count of the client's address. It is for ByLimiter alone,
	// because rules have keys of their own.
	Key func(C) string

	// User, APIKey and Tier identify the caller by means that cannot be forged. They return ""
	// if they do not know it. They are for New alone.
	User, APIKey, Tier func(C) string

	// Skip reports whether a request is not limited.
	Skip func(C) bool

	// Denied answers a denied request, or returns an error for the framework to handle. The
	// header fields are set. It must not keep the Outcome. If it is nil, the adapter answers.
	// It is not called if the client has gone away.
	Denied func(C, *Outcome) error

	// OnDecision receives the Outcome of each request that met a limit, before the handlers run
	// or the request is denied. It must not keep the Outcome.
	OnDecision func(C, *Outcome)

	// Count, Reserve and Settle are as in Options. Count and Settle are called as the handlers
	// return, at the latest: before a connection that outlives them is closed, and before fiber
	// sends a stream.
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
