package rules

import (
	"cmp"
	"net/http"

	"github.com/weir-go/weir/internal/httpread"
	"github.com/weir-go/weir/internal/strictyaml"
)

// Settle has the places in a response that contain the cost of the request. A Settle is shared, and
// must not be changed.
type Settle struct {
	Header, Trailer string         // canonical names of fields; empty if the field is not used
	JSON            []httpread.Sum // sums in the body; the first sum that is found is used
	Events          []httpread.Sum // sums in server-sent events, with the last number at each path; the first sum that is found is used
	KeepOnError     bool           // a response that is not successful is settled too; otherwise its estimate is refunded
	unit            int64
}

// Units returns a number of the response in units, rounded up.
func (s *Settle) Units(n int64) int64 { return inUnits(n, s.unit) }

// InHeader returns the cost in a field of the header of the response, in units. If there is
// none, ok is false.
func (s *Settle) InHeader(h http.Header) (units int64, ok bool) {
	if s.Header == "" {
		return 0, false
	}
	return s.found(single(h[s.Header]))
}

// found returns a number of the response in units. ok is false if n is -1, which stands for no number.
func (s *Settle) found(n int64) (units int64, ok bool) { return s.Units(max(n, 0)), n >= 0 }

// InTrailer returns the cost, in units, from the field Trailer of the header that a handler of
// net/http has set, either with http.TrailerPrefix or as an announced trailer.
func (s *Settle) InTrailer(h http.Header) (units int64, ok bool) {
	if s.Trailer == "" {
		return 0, false
	}
	n := single(h[http.TrailerPrefix+s.Trailer])
	if n < 0 {
		n = single(h[s.Trailer])
	}
	return s.found(n)
}

// Estimates reports whether the rule has its own estimate for a cost that is settled later.
func (r *Rule) Estimates() bool { return r.estimates }

// Estimate returns the units to spend before the response, at least 1.
func (r *Rule) Estimate(req *Request) int64 { return max(1, r.reserve.unitsOf(req)) }

// settle reads the estimate, and the source of the cost that replaces it.
func (p *parser) settle(r *Rule, reserve, settle, cost strictyaml.Value) {
	p.checkReserving(r, "reserve", reserve)
	p.checkReserving(r, "settle", settle)
	if r.estimates = reserve.Present(); r.estimates {
		r.reserve = p.costOf(r, reserve, "reserve", true)
		r.Reserve = r.reserve.String()
		refuse(reserve, conflict{!settle.Present(), "reserve without settle: use cost instead of reserve, because nothing would replace the estimate"})
		refuse(cost, conflict{!r.holds(), "cost in a rule with reserve: remove cost or reserve, because only in_flight limits have both"})
	}
	if !settle.Present() {
		return
	}
	m := settle.Map(settleFields...)
	s := &Settle{unit: cmp.Or(m.Get("unit").Int(1, maxRate), 1)}
	if v := m.Get("header"); v.Present() {
		s.Header = p.headerName(v, v.Text())
	}
	if v := m.Get("trailer"); v.Present() {
		s.Trailer = p.headerName(v, v.Text())
	}
	s.JSON, s.Events = jsonSums(m.Get("json")), jsonSums(m.Get("sse"))
	s.KeepOnError = oneOf(m.Get("on_error"), "way to settle an error", onErrorNames) == onErrorNames[1]
	refuse(settle, conflict{!m.HasAny("header", "trailer", "json", "sse"), "settle has no source: name a header, a trailer, or json and sse fields"})
	r.Settle = s
}

var onErrorNames = []string{"refund", "keep"}

const (
	maxPaths = 8 // in a sum
	maxSums  = 8 // alternatives; the first sum that is found counts
)

// jsonSums reads a path, a list of paths to add up, or a list of such lists.
func jsonSums(v strictyaml.Value) (all []httpread.Sum) {
	items := readItems(v)
	if len(items) == 0 || !items[0].IsList() {
		if sum := jsonSum(v, items); len(sum) > 0 {
			all = append(all, sum)
		}
		return all
	}
	if len(items) > maxSums {
		v.Errorf("the list has %d alternatives: use at most %d", len(items), maxSums)
		return nil
	}
	for _, item := range items {
		if !item.IsList() {
			item.Errorf("the list has a path among lists of paths: put the path into a list of its own")
			continue
		}
		all = append(all, jsonSum(item, readItems(item)))
	}
	return all
}

// jsonSum reads the paths of a sum.
func jsonSum(v strictyaml.Value, items []strictyaml.Value) (sum httpread.Sum) {
	if len(items) > maxPaths {
		v.Errorf("the sum has %d paths: use at most %d", len(items), maxPaths)
		return nil
	}
	optional := 0
	for _, item := range items {
		text := item.Text()
		if !item.IsText() {
			continue
		}
		term, err := httpread.ParseTerm(text)
		if err != nil {
			item.Errorf("%v", err)
		}
		if term.Optional {
			optional++
		}
		sum = append(sum, term)
	}
	if len(sum) > 0 && optional == len(sum) {
		v.Errorf("each path is optional, so that a response without any of them would cost nothing: let one be without \"or 0\"")
	}
	return sum
}

func jsonPath(v strictyaml.Value, text string) httpread.Path {
	path, err := httpread.ParsePath(text)
	if err != nil {
		v.Errorf("%v", err)
	}
	return path
}
