package httplimit

import (
	"context"
	"net/http"

	"github.com/weir-go/weir/rules"
)

// Exchange is a request of any framework, and its response. Serve calls the methods in this
// order, from a single goroutine, and does not retain their results, so that texts may be in a buffer
// that is reused after the request. Handler has an Exchange for net/http, and contrib/fiber has
// another.
//
// If the framework uses net/http, the Exchange should have a method HTTP() *http.Request. With
// this method, a request that waits in a queue ends when its client leaves, and a rule can reserve
// units by a JSON field of the body. An Exchange may also implement ExchangeFunctions.
type Exchange interface {
	// Read sets the fields of the request that limits use. With ByLimiter, the User is the key.
	Read(*rules.Request)
	// Decided receives the outcome of a request that met a limit, or is refused without one, for
	// example by a Block or because of its path. It must not retain the Outcome; WithOutcome copies it.
	Decided(*Outcome)
	// Field returns the present value of a field of the response, or "". Several lines are joined by
	// commas. The name is canonical.
	Field(name string) string
	// SetFields sets each named field of the response to the value with the same index. Names
	// are canonical. SetFields must not retain the slices, but may retain parts of values.
	SetFields(names, values []string)
	// Deny answers a request that is not admitted. StatusClientGone is only for the log of the
	// server, because the client does not read the response.
	Deny(*Outcome)
}

// ExchangeFunctions are methods that an Exchange may have. Begin calls each of them instead of
// the function of the same name in Options, if Options has that function. Serve does so only with
// Reserve. The Exchange must be valid until Admission.End has returned, which calls Count and Settle.
type ExchangeFunctions interface {
	Count(*rules.Rule, *Ended) bool
	Reserve(*rules.Rule) (units int64, ok bool)
	Settle(*rules.Rule, *Ended) (units int64, ok bool)
}

// Serve decides on a request, passes the result to its Exchange, and reports whether the request
// is admitted. Serve waits if a rule has a queue. Of the functions of Options, Serve calls only
// Reserve, OnWarn and, if the Exchange has HTTP and sets no Claims, Claim. The Exchange calls the
// other functions. Serve does not learn when the request ends: a request that meets an enforced
// in_flight limit is answered with 503, and estimates stay spent. Use Begin if the end is known.
func (m *Middleware) Serve(ctx context.Context, e Exchange) bool {
	s := m.scratches.Get().(*scratch)
	admitted := m.serve(ctx, s, e)
	m.putScratch(s)
	return admitted
}

// Begin is like Serve, for a request whose end is known. The caller must call Admission.End at the
// end of the request, also if the handler panics. Admission.End calls Count and Settle of the Options.
// The Admission is nil if the request is not admitted, or if it holds and reserves no units and meets
// no rule with adapt. All methods accept a nil Admission.
func (m *Middleware) Begin(ctx context.Context, e Exchange) (a *Admission, admitted bool) {
	s := m.scratches.Get().(*scratch)
	s.ends = true
	admitted = m.serve(ctx, s, e)
	a = s.admission
	m.putScratch(s)
	return a, admitted
}

func (m *Middleware) serve(ctx context.Context, s *scratch, e Exchange) bool {
	if h, ok := e.(interface{ HTTP() *http.Request }); ok {
		s.http = h.HTTP()
	}
	s.functions, _ = e.(ExchangeFunctions)
	e.Read(&s.request)
	if s.http != nil {
		s.web.m, s.web.r = m, s.http
		s.request.Content = &s.web
		if m.o.Claim != nil && s.request.Claims == nil {
			s.request.Claims = &s.web
		}
	}
	o := &s.outcome
	if !m.refuses(s) {
		m.decide(ctx, s)
		if len(o.Verdicts) == 0 && o.Status == 0 {
			return true
		}
		if o.Err != nil && o.Status != http.StatusBadRequest {
			m.logUncounted(o.Err)
		}
		if !s.request.Client.IsValid() {
			m.warnOfNoAddress(s)
		}
	}
	e.Decided(o)
	e.SetFields(m.fields(s, e))
	if o.Status == 0 {
		return true
	}
	if o.Status != StatusClientGone {
		// No cache may store the response, which is for a single client and moment.
		e.SetFields([]string{"Cache-Control", "X-Content-Type-Options"}, []string{"no-store", "nosniff"})
		o.setOwnFields(e.SetFields)
	}
	e.Deny(o)
	return false
}

// web is the Exchange of Handler. It is also the source of the body and the claims of each request of
// net/http.
type web struct {
	m *Middleware
	w http.ResponseWriter
	r *http.Request

	content
}

func (e *web) HTTP() *http.Request { return e.r }

func (e *web) Read(req *rules.Request) { e.m.read(req, e.r) }

// Claim returns a claim of the request, for rules with claims in their keys.
func (e *web) Claim(name string) string { return e.m.o.Claim(e.r, name) }

// Head returns the beginning of the body, for rules that reserve by the content.
func (e *web) Head() []byte { return e.content.readHead(e.r, e.m.o.MaxBody) }

func (e *web) Decided(o *Outcome) {
	if e.m.o.KeepOutcome {
		e.r = e.r.WithContext(WithOutcome(e.r.Context(), o))
	}
	if e.m.o.OnDecision != nil {
		e.m.o.OnDecision(e.r, o)
	}
}

func (e *web) Field(name string) string { return header(e.w.Header()).Field(name) }

func (e *web) SetFields(names, values []string) { setFields(e.w.Header(), names, values) }

// setFields sets fields to parts of values. Each part has no spare capacity, so that a line that
// is added later is not written into values.
func setFields(h http.Header, names, values []string) {
	for i, name := range names {
		h[name] = values[i : i+1 : i+1]
	}
}

func (e *web) Deny(o *Outcome) {
	switch {
	case o.Status == StatusClientGone:
		e.w.WriteHeader(o.Status)
	case e.m.o.Denied != nil:
		e.m.o.Denied(e.w, e.r, o)
	default:
		o.write(e.w, e.r)
	}
}

type outcomeKey struct{}

// WithOutcome returns a context in which OutcomeOf finds a copy of the Outcome.
func WithOutcome(ctx context.Context, o *Outcome) context.Context {
	kept := *o
	kept.Verdicts = append([]Verdict(nil), o.Verdicts...)
	return context.WithValue(ctx, outcomeKey{}, &kept)
}

// OutcomeOf returns the Outcome of the request with the given context: the decision and the remaining
// units of each limit. The result is nil if the request met no limit, or without Options.KeepOutcome.
// If there are several Middlewares, the Outcome is that of the last. Handlers must not change the
// Outcome.
func OutcomeOf(ctx context.Context) *Outcome {
	o, _ := ctx.Value(outcomeKey{}).(*Outcome)
	return o
}
