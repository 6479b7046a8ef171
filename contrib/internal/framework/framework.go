// Package framework contains the code that the adapters of httplimit for gin, echo and
// fiber share.
package framework

import (
	"cmp"
	"log/slog"
	"net/http"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// Limits limits the requests of a framework whose handlers have a context of type C.
type Limits[C any] struct {
	httplimit.FrameworkOptions[C]
	*httplimit.Middleware
}

// New returns Limits by the rules of a Book. The error is weir.ErrInvalid for invalid options.
func New[C any](node *weir.Node, book *rules.Book, o httplimit.FrameworkOptions[C]) (*Limits[C], error) {
	m, err := httplimit.New(node, book, translate(&o))
	return limits(m, o), err
}

// ByLimiter returns Limits by a Limiter. The error is weir.ErrInvalid for invalid
// options.
func ByLimiter[C any](l *weir.Limiter, o httplimit.FrameworkOptions[C]) (*Limits[C], error) {
	m, err := httplimit.ByLimiter(l, translate(&o))
	return limits(m, o), err
}

func limits[C any](m *httplimit.Middleware, o httplimit.FrameworkOptions[C]) *Limits[C] {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return &Limits[C]{o, m}
}

// translate returns the Options of httplimit. The functions in them, except OnWarn, only show which
// options are set: the Middleware calls the methods of the Exchange instead.
func translate[C any](o *httplimit.FrameworkOptions[C]) httplimit.Options {
	text := func(f func(C) string) func(*http.Request) string {
		if f == nil {
			return nil
		}
		return func(*http.Request) string { return "" }
	}
	to := httplimit.Options{
		Key: text(o.Key), User: text(o.User), APIKey: text(o.APIKey), Tier: text(o.Tier),
		OnWarn: o.OnWarn, MaxBody: o.MaxBody, Queue: o.Queue, MaxWaiting: o.MaxWaiting,
		NoXHeaders: o.NoXHeaders, NoIETFHeaders: o.NoIETFHeaders, RefuseAmbiguousPaths: o.RefuseAmbiguousPaths,
		Logger: o.Logger,
	}
	if o.Client != nil {
		to.Client = *o.Client
	}
	if o.Claim != nil {
		to.Claim = func(*http.Request, string) string { return "" }
	}
	if o.Critical != nil {
		to.Critical = func(*http.Request) bool { return false }
	}
	if o.Count != nil {
		to.Count = func(*http.Request, *rules.Rule, *httplimit.Ended) bool { return true }
	}
	if o.Reserve != nil {
		to.Reserve = func(*http.Request, *rules.Rule) (int64, bool) { return 0, false }
	}
	if o.Settle != nil {
		to.Settle = func(*http.Request, *rules.Rule, *httplimit.Ended) (int64, bool) { return 0, false }
	}
	return to
}

// Exchange implements the methods of an httplimit Exchange that call functions of the
// options.
type Exchange[C any] struct {
	Limits *Limits[C]
	C      C
}

// ReadCaller sets the fields User, APIKey, Tier, Claims and Critical of r. If the option Key is
// set, as ByLimiter permits, User has its key.
func (e *Exchange[C]) ReadCaller(r *rules.Request) {
	o := &e.Limits.FrameworkOptions
	for _, option := range [...]struct {
		value    *string
		function func(C) string
	}{{&r.User, o.User}, {&r.User, o.Key}, {&r.APIKey, o.APIKey}, {&r.Tier, o.Tier}} {
		if option.function != nil {
			*option.value = option.function(e.C)
		}
	}
	r.Critical = o.Critical != nil && o.Critical(e.C)
	if o.Claim != nil {
		r.Claims = e
	}
}

// Claim implements rules.Claims.
func (e *Exchange[C]) Claim(name string) string { return e.Limits.FrameworkOptions.Claim(e.C, name) }

// Count implements httplimit.ExchangeFunctions.
func (e *Exchange[C]) Count(rule *rules.Rule, ended *httplimit.Ended) bool {
	return e.Limits.FrameworkOptions.Count(e.C, rule, ended)
}

// Reserve implements httplimit.ExchangeFunctions.
func (e *Exchange[C]) Reserve(rule *rules.Rule) (units int64, ok bool) {
	return e.Limits.FrameworkOptions.Reserve(e.C, rule)
}

// Settle implements httplimit.ExchangeFunctions.
func (e *Exchange[C]) Settle(rule *rules.Rule, ended *httplimit.Ended) (units int64, ok bool) {
	return e.Limits.FrameworkOptions.Settle(e.C, rule, ended)
}

// SetFields sets the named fields of h to the values of the same index. The fields share the
// array of values. Each has no capacity beyond its value, so appending to a field copies it.
func SetFields(h http.Header, names, values []string) {
	for i, name := range names {
		h[name] = values[i : i+1 : i+1]
	}
}
