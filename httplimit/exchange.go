package httplimit

import (
	"context"
	"net/http"

	"github.com/weir-go/weir/rules"
)

// Exchange is a request of any framework, and its answer. Serve calls its methods in this
// order, from one goroutine, and keeps nothing that they return: texts may be of a buffer
// that is used again after the request. Handler has one for net/http; contrib/fiber has
// another.
//
// Where the framework is built on net/http, an Exchange also has a method
// HTTP() *http.Request. By it a request that waits in a queue ends once its client is gone.
// An Exchange may be ExchangeFunctions, too.
type Exchange interface {
	// Read fills in what limits look at. Under ByLimiter the User is the key.
	Read(*rules.Request)
	// Decided is told what became of a request that met a limit or was refused for its path.
	// The Outcome must not be kept; WithOutcome copies it.
	Decided(*Outcome)
	// Field returns a field of the answer, as it is so far: its lines with commas between
	// them, or "". The name is canonical.
	Field(name string) string
	// SetFields sets each of the named fields of the answer to the value of the same index.
	// Names are canonical. The slices must not be kept, other than parts of values.
	SetFields(names, values []string)
	// Deny answers a request that goes no further. A Status of StatusClientGone is for the
	// server's own log: nobody reads the answer.
	Deny(*Outcome)
}

// ExchangeFunctions are methods that an Exchange may have. Begin calls each of them in the place
// of the function of Options that has its name, if Options has that function. The Exchange must
// be valid until Admission.End has returned, which has then called Count and Settle.
type ExchangeFunctions interface {
	Count(*rules.Rule, *Ended) bool
	Reserve(*rules.Rule) (units int64, ok bool)
	Settle(*rules.Rule, *Ended) (units int64, ok bool)
}

// Serve decides on a request, tells its Exchange what to answer, and reports whether the
// request goes on. It waits where a limit has a queue. The functions of Options are not
// called: what they do is up to the Exchange. Nothing tells it when the request ends: one
// that meets an in_flight limit is answered with 503, and estimates stay spent. Begin is for
// callers that know the end.
func (m *Middleware) Serve(ctx context.Context, e Exchange) bool {
	s := m.scratches.Get().(*scratch)
	admitted := m.serve(ctx, s, e)
	m.done(s)
	return admitted
}

// Begin is Serve, for a request whose end the caller tells by Admission.End, also if the
// handler panics. The Admission is nil if the request has nothing until it ends, and if it
// goes no further; its methods take that. Of the Options, Count, Reserve and Settle are
// called. Where the Exchange has HTTP, a rule can reserve by a JSON field of the body.
func (m *Middleware) Begin(ctx context.Context, e Exchange) (a *Admission, admitted bool) {
	s := m.scratches.Get().(*scratch)
	s.ends = true
	admitted = m.serve(ctx, s, e)
	a = s.admission
	m.done(s)
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
	}
	o := &s.outcome
	if !m.refuses(s) {
		m.decide(ctx, s)
		if len(o.Verdicts) == 0 && o.Status == 0 {
			return true
		}
		if o.Err != nil {
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
		// Nobody may keep the answer: it is one client's, and of this moment.
		e.SetFields([]string{"Cache-Control", "X-Content-Type-Options"}, []string{"no-store", "nosniff"})
	}
	e.Deny(o)
	return false
}

// web is an Exchange of net/http, and the Content of any request that is one of net/http.
type web struct {
	m *Middleware
	w http.ResponseWriter
	r *http.Request

	content
}

func (e *web) HTTP() *http.Request { return e.r }

func (e *web) Read(to *rules.Request) { e.m.read(to, e.r) }

// Head is for rules that reserve by the content.
func (e *web) Head() []byte { return e.content.of(e.r, e.m.o.MaxBody) }

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

// setFields sets fields to parts of values. To add a line to one of them is to copy it.
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

// OutcomeOf returns the Outcome of the request whose context it is, for its handler: what
// was decided, and what is left of each limit. It is nil if the request met no limit, or
// without Options.KeepOutcome. Of several Middlewares it is the last one's. It must not be
// changed.
func OutcomeOf(ctx context.Context) *Outcome {
	o, _ := ctx.Value(outcomeKey{}).(*Outcome)
	return o
}
