package httplimit

import (
	"errors"
	"mime"
	"net/http"
	"strings"

	"github.com/weir-go/weir/internal/httpread"
	"github.com/weir-go/weir/rules"
)

var (
	errCostMissing = errors.New("the response lacks a field that settle names")
	errNoCost      = errors.New("the function Settle returned no cost")
	errCostEncoded = errors.New("settle cannot read the cost, because the response has a Content-Encoding")
)

// bill is the cost of a request under a rule, as the response reports it.
type bill struct {
	rule    *rules.Rule
	units   int64 // cost in the header
	inField bool  // the header has the cost
	encoded bool  // the body has a Content-Encoding, and cannot be read
	untold  bool  // the missing cost was counted in Unsettled
	json    *httpread.Scanner
	events  *httpread.Events
}

// begin reads the header of the response, before its body.
func (b *bill) begin(h http.Header) {
	s := b.rule.Settle
	if s == nil {
		return
	}
	b.units, b.inField = s.InHeader(h)
	if b.inField || len(s.JSON)+len(s.Events) == 0 {
		return
	}
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		b.encoded = true
		return
	}
	mediaType, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	switch {
	case mediaType != "text/event-stream" && len(s.JSON) > 0:
		b.json = httpread.NewScanner(s.JSON...)
	case mediaType == "text/event-stream" && len(s.Events) > 0:
		b.events = &httpread.Events{Scanner: httpread.NewScanner(s.Events...)}
	}
}

// reads reports whether the body may have the cost.
func (b *bill) reads() bool { return b.json != nil || b.events != nil }

// scan reads a part of the body.
func (b *bill) scan(p []byte) {
	switch {
	case b.json != nil:
		b.json.Scan(p)
	case b.events != nil:
		b.events.Scan(p)
	}
}

// total returns the cost in the response. If the result all is false, the units are a lower bound of the
// cost.
func (b *bill) total(h http.Header) (units int64, all bool) {
	s := b.rule.Settle
	if s == nil {
		return 0, false
	}
	if units, all = s.InTrailer(h); all {
		return units, true
	}
	switch {
	case b.inField:
		return b.units, true
	case b.json != nil:
		units, all = b.json.Sum()
	case b.events != nil:
		units, all = b.events.Scanner.Sum()
	}
	return s.Units(units), all
}

// settle replaces an estimate by the cost of the request, after it has ended. Without a rule's
// settle, the function of the options settles only the limit of ByLimiter: other units stay spent.
func (a *Admission) settle(c *charge, e *Ended) {
	s := c.bill.rule.Settle
	success := e.Status == 0 || e.Status == http.StatusSwitchingProtocols || e.Status/100 == 2
	switch {
	case !a.counts(c.bill.rule, e):
		a.giveBack(c)
		return
	case s == nil && (a.m.one == nil || a.m.o.Settle == nil):
		return
	case !success && (s == nil || !s.KeepOnError):
		a.giveBack(c)
		return
	}
	units, all := a.cost(c, e)
	if all || units > c.reservation.Units() {
		a.logEnd(c.reservation.Decision().Name, c.reservation.Settle(a.ctx(), units))
	}
	if all || e.Aborted || !success || c.bill.untold {
		return
	}
	c.bill.untold = true
	a.m.unsettled.Add(1)
	err := errCostMissing
	switch {
	case s == nil:
		err = errNoCost
	case c.bill.encoded:
		err = errCostEncoded
	}
	a.m.logUnsettled(c.reservation.Decision().Name, err)
}

// cost returns the cost of the request, or a lower bound if the result all is false.
func (a *Admission) cost(c *charge, e *Ended) (units int64, all bool) {
	if a.m.o.Settle != nil {
		settle := func() (int64, bool) { return a.m.o.Settle(a.r, c.bill.rule, e) }
		if a.functions != nil {
			settle = func() (int64, bool) { return a.functions.Settle(c.bill.rule, e) }
		}
		if units, ok := settle(); ok {
			return max(0, units), true
		}
	}
	return c.bill.total(e.Header)
}
