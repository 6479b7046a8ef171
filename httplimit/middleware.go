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

// Options say how a Middleware reads requests and answers them. The zero Options
// are valid: by the connection's address, without users, keys and tiers.
type Options struct {
	Client ClientAddress // which address a request comes from; RemoteAddr if zero

	// User, APIKey and Tier say who asks, by means that cannot be forged; empty
	// if it is not known, as when they are nil. They are called for each request
	// that is not skipped, and must not block.
	User, APIKey, Tier func(*http.Request) string

	NoXHeaders    bool // no X-RateLimit-Limit, -Remaining and -Reset
	NoIETFHeaders bool // no RateLimit and RateLimit-Policy

	// MaxWaiting is how many requests of one rule may wait for their turn at
	// once, here; more are denied. 1,024 if zero.
	MaxWaiting int

	// RefuseAmbiguousPaths has a request answered with 400, and not counted, whose path
	// servers are known to read in several ways, so that the server behind may serve a path
	// that the rules have not seen: one with a backslash, a semicolon, an empty segment,
	// a . or .. for a segment, a #, a double escape, a control character, or invalid UTF-8;
	// and one with an escaped slash, if its readings meet different rules. docs/http.md has
	// the table. Off, such a path meets the rules of each reading that rules.Request knows.
	RefuseAmbiguousPaths bool

	// Skip reports whether a request is not limited, like one for a health
	// check. Nil: all are limited. A rule leaves requests out with match.not.
	Skip func(*http.Request) bool

	// Key returns the text whose count a request spends from, such as a HeaderValue. Where it
	// is empty or Key is nil, the request spends from the count of the client's address, of
	// an IPv6 one of its /64. A text that reads as an address has a count of its own, so that
	// no name spends from an address. Key is for ByLimiter alone, because rules have keys of
	// their own. It must not block.
	Key func(*http.Request) string

	// Queue is how long a request may wait for its turn. It is for ByLimiter alone, and its
	// Limiter has to be a LeakyBucket or InFlight. None wait if zero.
	Queue time.Duration

	// Count reports whether a request counts, once it has ended: the units are spent before,
	// and given back if it does not. It is for the limit of ByLimiter, and for rules with
	// count or refund_on, in place of their statuses. Nil: with ByLimiter all count. It must
	// not block.
	Count func(*http.Request, *rules.Rule, *Ended) bool

	// Reserve returns what a request may cost, in units, one at least. It is for the limit of
	// ByLimiter, and for rules with reserve, where what is not ok is up to the rule. It must
	// not read the body, nor block.
	Reserve func(*http.Request, *rules.Rule) (units int64, ok bool)

	// Settle returns what a request has cost, in units, once it has ended, in place of what
	// was reserved. It is for the limit of ByLimiter, and for rules with settle, where what is
	// not ok is up to the rule. It is not called for a response that is no success, unless the
	// rule has on_error: keep. It must not block.
	Settle func(*http.Request, *rules.Rule, *Ended) (units int64, ok bool)

	// MaxBody is how many bytes of a request's body are read ahead where a rule reserves by
	// a JSON field of it. 1 MiB if zero.
	MaxBody int64

	// Denied answers a request that goes no further, in place of the body that docs/http.md
	// has. The fields are set, with Retry-After; the Outcome has the Status, a Problem and a
	// Body, and must not be kept. A client that is gone is not answered.
	Denied func(http.ResponseWriter, *http.Request, *Outcome)

	// KeepOutcome lets handlers read the Outcome of their request by OutcomeOf. It costs a
	// few allocations.
	KeepOutcome bool

	// OnDecision is told what became of each request that met a rule, or was refused
	// for its path, before it goes on or is answered; the Outcome must not be kept. It
	// must not block.
	OnDecision func(*http.Request, *Outcome)

	Logger *slog.Logger // slog.Default if nil. Never sees a key
}

const (
	defaultMaxWaiting = 1024
	defaultMaxBody    = 1 << 20
)

// Middleware decides on requests by the rules of a Book, or by one Limiter. It is safe for
// concurrent use, and has nothing to close.
type Middleware struct {
	node *weir.Node
	book *rules.Book // nil with one
	one  *one        // nil with a book
	o    Options
	now  func() time.Time

	scratches sync.Pool
	waiting   sync.Map // by a rule's name, an *semaphore.Weighted: a place for each that may wait

	uncounted, unsettling loglimit.Line // paces of log lines
	addressless           atomic.Bool   // the line about requests without an address is logged
	unsettled             atomic.Uint64
}

// New is a Middleware. The error is weir.ErrInvalid for what is wrong with o.
func New(node *weir.Node, book *rules.Book, o Options) (*Middleware, error) {
	if node == nil || book == nil {
		return nil, fmt.Errorf("%w httplimit.New: node or book is nil: pass a Node that was started, and the Book that rules.Open returned", weir.ErrInvalid)
	}
	if o.Key != nil || o.Queue != 0 {
		return nil, fmt.Errorf("%w Options.Key and Queue: rules have their own: use ByLimiter, or leave both out", weir.ErrInvalid)
	}
	return newMiddleware(&Middleware{node: node, book: book, o: o})
}

// newMiddleware completes m, whose node, options and limits are there.
func newMiddleware(m *Middleware) (*Middleware, error) {
	o := &m.o
	if err := o.Client.validate(); err != nil {
		return nil, err
	}
	if o.MaxWaiting < 0 {
		return nil, fmt.Errorf("%w Options.MaxWaiting: %d: use 0 for %d, or how many may wait", weir.ErrInvalid, o.MaxWaiting, defaultMaxWaiting)
	}
	o.MaxWaiting = cmp.Or(o.MaxWaiting, defaultMaxWaiting)
	if o.MaxBody < 0 {
		return nil, fmt.Errorf("%w Options.MaxBody: %d: use 0 for %d, or how many bytes to read", weir.ErrInvalid, o.MaxBody, defaultMaxBody)
	}
	o.MaxBody = cmp.Or(o.MaxBody, defaultMaxBody)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	m.now = time.Now
	m.scratches.New = func() any { return new(scratch) }
	return m, nil
}

// Handler has next answer the requests that all limits allow. The header's fields
// are set before next is called, which may change them, and finds there what was
// decided. next gets the ResponseWriter as it is: it can flush, hijack, and
// whatever else its server offers. Where the request holds units until it ends, next gets
// one that passes all of that on; http.ResponseController finds the rest.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var a *Admission
		if m.o.Skip == nil || !m.o.Skip(r) {
			s := m.scratches.Get().(*scratch)
			s.web, s.ends = web{m: m, w: w, r: r}, true
			admitted := m.serve(r.Context(), s, &s.web)
			r, a = s.web.r, s.admission
			m.done(s)
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

// Unsettled returns how many responses did not say what their requests had cost though they
// were complete, so that the estimates stay spent.
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

// done keeps s for the next request, but nothing of this one's.
func (m *Middleware) done(s *scratch) {
	s.forget()
	m.scratches.Put(s)
}

// read is what rules look at of a request.
func (m *Middleware) read(to *rules.Request, r *http.Request) {
	to.Method, to.Host = r.Method, r.Host
	to.SetURL(r.URL)
	to.Header, to.Length = r.Header, r.ContentLength
	to.Client = m.o.Client.Of(r)
	for _, option := range [...]struct {
		value    *string
		function func(*http.Request) string
	}{{&to.User, m.o.User}, {&to.User, m.o.Key}, {&to.APIKey, m.o.APIKey}, {&to.Tier, m.o.Tier}} {
		if option.function != nil {
			*option.value = option.function(r)
		}
	}
}

// Request is what the rules look at of r, by the Options.
func (m *Middleware) Request(r *http.Request) rules.Request {
	var to rules.Request
	m.read(&to, r)
	return to
}

// Check decides on a request that does not come by net/http: a message on a
// WebSocket, or a call of another protocol. It waits where a rule has a queue. Nothing tells
// it when the event ends: one that meets an in_flight limit has Status 503, and Err names
// the limit. BeginCheck is for events that end.
// Without a rule that the request meets, the Outcome has no Verdicts, and Status 0:
// it goes on. Skip, OnDecision and what is about headers have no part in it. The
// Outcome may be kept.
func (m *Middleware) Check(ctx context.Context, r *rules.Request) Outcome {
	s := new(scratch)
	s.request = *r
	m.decide(ctx, s)
	return s.outcome
}

// BeginCheck is Check, for an event whose end the caller tells by Admission.End. The
// Admission is as Begin returns it. Count, Reserve and Settle of the Options are called
// without a Request.
func (m *Middleware) BeginCheck(ctx context.Context, r *rules.Request) (Outcome, *Admission) {
	s := &scratch{request: *r, ends: true}
	m.decide(ctx, s)
	return s.outcome, s.admission
}

// logUncounted logs at a pace that requests are not counted. A client that has gone is no error.
func (m *Middleware) logUncounted(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	if unlogged, due := m.uncounted.Due(m.now()); due {
		m.o.Logger.Error("requests cannot be counted; they pass if their rules are fail_open", "error", err, "unlogged", unlogged)
	}
}

// logUnsettled logs at a pace that units which a request has not used stay spent.
func (m *Middleware) logUnsettled(limit string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	if unlogged, due := m.unsettling.Due(m.now()); due {
		m.o.Logger.Warn("units that a request did not use stay spent", "limit", limit, "error", err, "unlogged", unlogged)
	}
}
