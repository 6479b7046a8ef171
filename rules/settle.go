package rules

import (
	"net/http"
	"slices"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/jsonscan"
	"github.com/weir-go/weir/internal/strictyaml"
)

// Settle is where a response says what its request has cost. It is shared, and must not be
// changed.
type Settle struct {
	Header, Trailer string          // canonical; empty: it is not there
	JSON            []jsonscan.Path // of the body: the sum of these numbers
	Events          []jsonscan.Path // of server-sent events: the sum of the last number of each
	KeepOnError     bool            // a response that is no success is settled, too
	unit            int64
}

// Units returns what a number of the response is in units, rounded up.
func (s *Settle) Units(n int64) int64 { return inUnits(n, s.unit) }

// InHeader and InTrailer return the cost in a field of the response's header, in units; not
// ok if it says none.
func (s *Settle) InHeader(h http.Header) (units int64, ok bool) {
	if s.Header == "" {
		return 0, false
	}
	n := single(h[s.Header])
	return s.Units(max(n, 0)), n >= 0
}

// InTrailer reads what net/http's handlers set: a trailer that was announced, or that has the
// prefix.
func (s *Settle) InTrailer(h http.Header) (units int64, ok bool) {
	if s.Trailer == "" {
		return 0, false
	}
	n := single(h[http.TrailerPrefix+s.Trailer])
	if n < 0 {
		n = single(h[s.Trailer])
	}
	return s.Units(max(n, 0)), n >= 0
}

// Estimates reports whether the rule has an estimate of its own for what is settled later.
func (r *Rule) Estimates() bool { return r.estimates }

// Estimate returns what is spent ahead for a request, one unit at least.
func (r *Rule) Estimate(req *Request) int64 { return max(1, r.reserve.of(req)) }

// settle reads what is spent ahead, and what it is settled by.
func (p *parser) settle(r *Rule, reserve, settle, cost strictyaml.Value) {
	p.ahead(r, "reserve", reserve)
	p.ahead(r, "settle", settle)
	if r.estimates = reserve.Present(); r.estimates {
		r.reserve = p.costOf(reserve, "reserve", true)
		r.Reserve = r.reserve.String()
		if !settle.Present() {
			reserve.Errorf("reserve without settle: nothing would replace the estimate, use cost")
		}
		if cost.Present() && !slices.ContainsFunc(r.Limits, func(l Limit) bool { return l.base.Algorithm == weir.InFlight }) {
			cost.Errorf("cost in a rule with reserve: only in_flight limits have both, remove one of them")
		}
	}
	if !settle.Present() {
		return
	}
	m := settle.Map(settleFields...)
	s := &Settle{unit: 1}
	if v := m.Get("header"); v.Present() {
		s.Header = p.headerName(v, v.Text())
	}
	if v := m.Get("trailer"); v.Present() {
		s.Trailer = p.headerName(v, v.Text())
	}
	s.JSON, s.Events = jsonPaths(m.Get("json")), jsonPaths(m.Get("sse"))
	if v := m.Get("unit"); v.Present() {
		s.unit = max(1, v.Int(1, maxRate))
	}
	s.KeepOnError = oneOf(m.Get("on_error"), "way to settle an error", onErrorNames) == onErrorNames[1]
	if !m.Get("header").Present() && !m.Get("trailer").Present() && !m.Get("json").Present() && !m.Get("sse").Present() {
		settle.Errorf("settle is without a source: name a header, a trailer, or json and sse fields")
	}
	r.Settle = s
}

var onErrorNames = []string{"refund", "keep"}

const maxPaths = 8

// jsonPaths reads one or more paths, which are summed.
func jsonPaths(v strictyaml.Value) (all []jsonscan.Path) {
	items := some(v)
	if len(items) > maxPaths {
		v.Errorf("%d paths: use at most %d", len(items), maxPaths)
		return nil
	}
	for _, item := range items {
		if text := item.Text(); item.IsText() {
			all = append(all, jsonPath(item, text))
		}
	}
	return all
}

func jsonPath(v strictyaml.Value, text string) jsonscan.Path {
	path, err := jsonscan.ParsePath(text)
	if err != nil {
		v.Errorf("%v", err)
	}
	return path
}
