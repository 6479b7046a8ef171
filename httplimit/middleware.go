package httplimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/loglimit"
	"github.com/weir-go/weir/rules"
)

// Options configure how a Middleware reads requests and answers them. The zero Options are
// valid: the address of the connection is the client, and there are no users, keys and tiers.
type Options struct {
	Client ClientAddress // finds the address of the client; RemoteAddr if zero

	// User, APIKey and Tier identify the caller by means that cannot be forged. They return ""
	// for an unknown caller. They are called for each request that is not skipped, and must not
	// block. They are only for New: ByLimiter has Key.
	User, APIKey, Tier func(*http.Request) string

	// Claim returns the validated claim with the given name, for example from a token, or "" if the
	// request lacks the claim. Claim is called for each claim that the key of a rule names, such as
	// claim:org. It must not block, and is only for New.
	Claim func(r *http.Request, name string) string

	// Critical reports whether a request may spend the kept units of all its limits (weir.Limit.Keep),
	// by means that its client cannot forge. Rules can also select requests (rules.Rule.Critical).
	// Critical must not block.
	Critical func(*http.Request) bool

	NoXHeaders    bool // omit X-RateLimit-Limit, -Remaining and -Reset
	NoIETFHeaders bool // omit RateLimit and RateLimit-Policy

	// MaxWaiting is the maximum number of requests of a rule that wait in its queue in this
	// Middleware. Further requests are denied. 1,024 if zero.
	MaxWaiting int

	// RefuseAmbiguousPaths makes the Middleware answer a request with 400, without counting it,
	// if servers are known to read its path in several ways. A server behind the Middleware may serve
	// such a path as one that the rules have not matched. The path has a backslash, a semicolon, an empty
	// segment, a segment "." or "..", a "#", an invalid or double escape, a control character, or
	// invalid UTF-8. A path with an escaped slash is refused only if its readings meet different
	// rules. docs/http.md has examples. If the option is false, an ambiguous path meets the rules of
	// each reading that rules.Request knows.
	RefuseAmbiguousPaths bool

	// Skip reports whether a request is exempt from all limits, such as a health check. If nil, all
	// requests are limited. A single rule can exclude requests with match.not.
	Skip func(*http.Request) bool

	// Key returns the text whose count a request spends from, such as a HeaderValue. If the text
	// is empty or Key is nil, the request spends from the count of the address of the client, or of
	// the /64 of an IPv6 address. A text that reads as an address has a count of its own, so
	// that no name spends from the count of an address. Key is only for ByLimiter, because rules
	// have their own keys. It must not block.
	Key func(*http.Request) string

	// Queue is the maximum time for which a request waits for its turn. Queue is only for
	// ByLimiter, with a LeakyBucket or InFlight. If zero, requests do not wait.
	Queue time.Duration

	// Count reports whether a request is charged, after the request has ended. The Middleware
	// spends the units before it admits the request, and refunds them if Count returns false. Count
	// decides for the limit of ByLimiter, and for rules with count or refund_on: the statuses in
	// these rules then have no effect. If Count is nil, ByLimiter charges all requests, except those
	// that Settle refunds. Count must not block.
	//
	// Count, Reserve and Settle get the rule that the request met. With ByLimiter this is a Rule
	// that has the Name of the limit, and no Limits. Count and Settle are called for each limit of
	// the rule that is not in_flight. ByLimiter refuses all three for an InFlight limit, and with
	// Queue.
	Count func(*http.Request, *rules.Rule, *Ended) bool

	// Reserve returns the units to spend before a request; less than 1 is 1. Reserve is for the
	// limit of ByLimiter, which needs Settle as well, and for rules with reserve. If ok is false,
	// the estimate is that of the rule, or 1 with ByLimiter. More units than rules.Capacity of an
	// enforced limit are answered with 413. Reserve must not read the body, and must not block.
	Reserve func(*http.Request, *rules.Rule) (units int64, ok bool)

	// Settle returns the cost of a request in units, 0 or more, after the request has ended. The
	// cost replaces the units that were spent before the request. Settle is for the limit of
	// ByLimiter, and for rules with settle. If ok is false, a rule reads the cost from the response.
	// Without a cost, the units stay spent. If the response is complete, the missing cost is logged as
	// a warning, and Unsettled counts it. Settle must not block.
	//
	// Settle is called if Ended.Status is 2xx, 101 or 0, and for any other status if the rule has
	// on_error: keep. A handler that sets no status has the Status 200. Without on_error: keep, all
	// units are refunded for a status such as 304, or the 500 of a panic before the response. If Count
	// returns false, all units are refunded, and Settle is not called. Status 0 means that the client
	// left before a response was sent. Then return the cost of the work that was done, 0 to refund the
	// units, or ok false to leave them spent.
	Settle func(*http.Request, *rules.Rule, *Ended) (units int64, ok bool)

	// MaxBody is the maximum number of bytes of a body that are read in advance if a rule
	// reserves units by a JSON field. 1 MiB if zero.
	MaxBody int64

	// Denied answers a request that is not admitted. If nil, the Middleware sends a body of
	// docs/http.md. The header fields are set before, including Retry-After. The Outcome has the Status,
	// a Problem and a Body, and must not be retained. Denied is not called if the client has left.
	Denied func(http.ResponseWriter, *http.Request, *Outcome)

	// KeepOutcome makes the Outcome of a request available to its handler through OutcomeOf. It
	// costs a few allocations.
	KeepOutcome bool

	// OnWarn receives the Verdict of a limit after an admitted request, if the used part of the limit is at
	// least its rules.Limit.Warn. Each Middleware calls OnWarn once for each key and window. The window is
	// Per, or the time until the whole limit is available if that is less; for in_flight it is a minute.
	// The Middleware remembers warned keys in a table of 4,096 places. Two keys with the same place can
	// each be reported several times. OnWarn must not retain the Verdict, and must not block. OnWarn is
	// only for New.
	OnWarn func(*Verdict)

	// OnDecision receives the Outcome of each request that met a limit, or is refused without one, for
	// example by a Block or because of its path, before the request is admitted or answered. OnDecision
	// must not retain the Outcome, and must not block.
	OnDecision func(*http.Request, *Outcome)

	Logger *slog.Logger // slog.Default if nil. The Logger never receives a key
}

const (
	defaultMaxWaiting = 1024
	defaultMaxBody    = 1 << 20
)

// Middleware decides on requests by the rules of a Book, or by a Limiter. A Middleware is safe for
// concurrent use, and need not be closed.
type Middleware struct {
	node *weir.Node
	book *rules.Book // nil with ByLimiter
	one  *one        // the limit of ByLimiter; nil with New
	o    Options
	now  func() time.Time

	scratches sync.Pool
	waiting   sync.Map // *semaphore.Weighted with MaxWaiting places, by the name of a rule

	uncounted, unsettling loglimit.Line // limit the rate of a log line each
	addressless           atomic.Bool   // the line about requests without an address was logged
	unsettled             atomic.Uint64
	warnings              *warnings // nil without OnWarn
}

// New returns a Middleware. The error is weir.ErrInvalid with the invalid option.
func New(node *weir.Node, book *rules.Book, o Options) (*Middleware, error) {
	if node == nil || book == nil {
		return nil, fmt.Errorf("%w httplimit.New: node or book is nil: pass a Node that was started, and the Book that rules.Open returned", weir.ErrInvalid)
	}
	if o.Key != nil || o.Queue != 0 {
		return nil, fmt.Errorf("%w Options.Key and Queue: rules have keys and queues of their own: use ByLimiter, or leave both out", weir.ErrInvalid)
	}
	return newMiddleware(&Middleware{node: node, book: book, o: o})
}

// newMiddleware validates the options of m, and sets its remaining fields.
func newMiddleware(m *Middleware) (*Middleware, error) {
	o := &m.o
	if err := o.Client.validate(); err != nil {
		return nil, err
	}
	if o.MaxWaiting < 0 {
		return nil, fmt.Errorf("%w Options.MaxWaiting: %d: use 0 for the default of %d, or the maximum number of waiting requests", weir.ErrInvalid, o.MaxWaiting, defaultMaxWaiting)
	}
	o.MaxWaiting = cmp.Or(o.MaxWaiting, defaultMaxWaiting)
	if o.MaxBody < 0 {
		return nil, fmt.Errorf("%w Options.MaxBody: %d: use 0 for the default of %d, or the maximum number of bytes to read", weir.ErrInvalid, o.MaxBody, defaultMaxBody)
	}
	o.MaxBody = cmp.Or(o.MaxBody, defaultMaxBody)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.OnWarn != nil {
		m.warnings = new(warnings)
	}
	m.now = time.Now
	m.scratches.New = func() any { return new(scratch) }
	return m, nil
}

// Handler returns a handler that calls next for the requests that are admitted or skipped. The header
// fields are set before the call, so that next may read and change them. If the request holds or
// reserves units, or meets a rule with adapt, next gets the ResponseWriter that Admission.Wrap
// describes. Otherwise next gets the original ResponseWriter.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var a *Admission
		if m.o.Skip == nil || !m.o.Skip(r) {
			s := m.scratches.Get().(*scratch)
			s.web, s.ends = web{m: m, w: w, r: r}, true
			admitted := m.serve(r.Context(), s, &s.web)
			r, a = s.web.r, s.admission
			m.putScratch(s)
			if !admitted {
				return
			}
		}
		if a != nil {
			a.serve(next, w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Unsettled returns the number of complete responses without the cost of their requests. Errors
// under on_error: keep are not counted. For each counted response, the estimate stays spent, or the
// known part of the cost if that is more. A response counts once for each rule that lacks the cost.
func (m *Middleware) Unsettled() uint64 { return m.unsettled.Load() }

// warnOfNoAddress logs once that requests share a key because they have no address.
func (m *Middleware) warnOfNoAddress(s *scratch) {
	if !s.outcome.LacksAddress() || !m.addressless.CompareAndSwap(false, true) {
		return
	}
	network, from := "", ""
	if r := s.http; r != nil {
		network, from = networkOf(r), r.RemoteAddr
	}
	m.o.Logger.Warn("requests without an address share one key; for a Unix socket use ClientAddress.TrustUnix",
		"network", network, "remote_addr", from)
}

// putScratch returns s to the pool, without data of this request.
func (m *Middleware) putScratch(s *scratch) {
	s.forget()
	m.scratches.Put(s)
}

// read sets the fields of a request that rules use.
func (m *Middleware) read(req *rules.Request, r *http.Request) {
	req.Method, req.Host = r.Method, r.Host
	req.SetURL(r.URL)
	req.Header, req.Length = r.Header, r.ContentLength
	req.Client = m.o.Client.FromRequest(r)
	for _, option := range [...]struct {
		value    *string
		function func(*http.Request) string
	}{{&req.User, m.o.User}, {&req.User, m.o.Key}, {&req.APIKey, m.o.APIKey}, {&req.Tier, m.o.Tier}} {
		if option.function != nil {
			*option.value = option.function(r)
		}
	}
	req.Critical = m.o.Critical != nil && m.o.Critical(r)
}

// Request returns the fields of r that rules use, according to the Options.
func (m *Middleware) Request(r *http.Request) rules.Request {
	var to rules.Request
	m.read(&to, r)
	if m.o.Claim != nil {
		to.Claims = &web{m: m, r: r}
	}
	return to
}

// Check decides on an event that is not a request of net/http, such as a message on a WebSocket,
// or a call of a different protocol. Check waits if a rule has a queue. Check does not learn when the
// event ends: if the event meets an enforced in_flight limit, the Status is 503, and Err has the limit.
// Use BeginCheck for events that end. If the event meets no rule, the Outcome has no Verdicts,
// and Status 0, which admits the event. Of the Options, Check uses only Reserve, Queue, MaxWaiting, OnWarn
// and Logger. With ByLimiter and Options.Key, the User of r is the key. Reserve is called with a nil
// http.Request, and the reserved units stay spent. The caller may retain the Outcome.
func (m *Middleware) Check(ctx context.Context, r *rules.Request) Outcome {
	s := new(scratch)
	s.request = *r
	m.decide(ctx, s)
	return s.outcome
}

// BeginCheck is like Check, for an event whose end the caller reports with Admission.End. The
// Admission is as in Begin. Count, Reserve and Settle of the Options are called with a nil
// http.Request.
func (m *Middleware) BeginCheck(ctx context.Context, r *rules.Request) (Outcome, *Admission) {
	s := &scratch{request: *r, ends: true}
	m.decide(ctx, s)
	return s.outcome, s.admission
}

// logUncounted logs, at a limited rate, that requests are not counted. The error of a client that
// has left is ignored.
func (m *Middleware) logUncounted(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	if unlogged, due := m.uncounted.Due(m.now()); due {
		m.o.Logger.Error("requests cannot be counted; they pass if their rules are fail_open", "error", err, "unlogged", unlogged)
	}
}

// logUnsettled logs, at a limited rate, that units which a request did not use stay spent.
func (m *Middleware) logUnsettled(limit string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	if unlogged, due := m.unsettling.Due(m.now()); due {
		m.o.Logger.Warn("units that a request did not use stay spent", "limit", limit, "error", err, "unlogged", unlogged)
	}
}
