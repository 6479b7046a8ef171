package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// scratch is the working memory for a decision. It is reused for other requests, after forget has
// dropped all data of the request. A field that forget misses would reveal the request of a client to
// the next client.
type scratch struct {
	web       web               // the Exchange of Handler
	http      *http.Request     // nil if the request is not from net/http
	functions ExchangeFunctions // used instead of the functions of the options; may be nil
	request   rules.Request
	rules     []*rules.Rule
	keys      []byte
	asks      []weir.Ask
	decisions weir.Decisions
	header    []byte
	names     [maxFields]string
	outcome   Outcome
	ends      bool          // the end of the request is known: the caller ends the Admission, or the client ends the holds and reservations by their texts
	ttl       time.Duration // ttl of the holds that the client ends by their texts; 0 if the end of a handler ends the holds
	admission *Admission    // holds, reservations and measurement of the request; nil if there are none
}

// forget drops the data of a request, and keeps the capacity of slices. The bytes of keys and header
// stay until the next request overwrites them.
func (s *scratch) forget() {
	clear(s.rules)
	clear(s.outcome.Verdicts)
	clear(s.asks)
	clear(s.decisions)
	s.web, s.http, s.functions, s.request, s.ends, s.ttl, s.admission = web{}, nil, nil, rules.Request{}, false, 0, nil
	s.outcome = Outcome{Verdicts: s.outcome.Verdicts[:0]}
}

// decide decides on the request with all limits that it meets, and sets the outcome. All of them are
// limits of the same Snapshot.
func (m *Middleware) decide(ctx context.Context, s *scratch) {
	o := &s.outcome
	if m.one != nil {
		m.one.meet(m, s)
		m.judge(ctx, s)
		return
	}
	o.Snapshot = m.book.Current()
	if b := o.Snapshot.Block(&s.request); b != nil {
		o.refuseBy(b, m.now())
		return
	}
	s.rules = o.Snapshot.Match(&s.request, s.rules[:0])
	m.meet(s)
	if o.Status != 0 {
		return
	}
	if err := s.web.err; err != nil {
		o.fail(err)
		return
	}
	if len(s.rules) > rules.MaxMet || len(o.Verdicts) > rules.MaxMet {
		clear(o.Verdicts)
		o.Verdicts, o.Status, o.Err = o.Verdicts[:0], http.StatusServiceUnavailable, errCrowd
		return
	}
	if len(o.Verdicts) > 0 {
		m.judge(ctx, s)
	}
}

// Judge decides with the limits of the Verdicts, like for a request that meets their rules, and
// sets the Decisions, Soft, Warned, the Status and Err. The caller has set the Snapshot, and the Rule, Mode,
// Limiter, Key, Tier, Units and Overrun of each Verdict. Judge does not wait in a queue. For an
// enforced in_flight limit the Err is ErrNoEnd. The limit of a rule that is off is not asked, and its
// Decision is the result of Unasked.
func (m *Middleware) Judge(ctx context.Context, o *Outcome) {
	s := scratch{outcome: *o}
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		if o.Snapshot.Warns() {
			v.limit, _, _ = o.Snapshot.Limit(v.Limiter.Limit().Name)
		}
		switch {
		case v.Mode == rules.Off:
			v.asked, v.Decision = unasked, Unasked(v.Limiter.Limit())
		case v.Limiter.Limit().Algorithm == weir.InFlight:
			v.asked = forHold
		}
	}
	m.judge(ctx, &s)
	*o = s.outcome
}

// judge decides with the limits of the Verdicts, and sets the other fields of the outcome.
func (m *Middleware) judge(ctx context.Context, s *scratch) {
	if m.node.UsesCallers() {
		ctx = weir.WithCaller(ctx, s.caller())
	}
	m.ask(ctx, s)
	s.countDenials()
	o := &s.outcome
	if s.admission != nil && o.Status != 0 {
		s.abandon()
	}
	if o.Status == 0 && s.ends && s.ttl == 0 && o.Snapshot.Measures() {
		s.measure(m)
	}
	switch {
	case o.Status == 0 && o.Snapshot.Warns():
		m.warn(o)
	case o.Status == http.StatusTooManyRequests && !o.Banned():
		o.chooseTexts(m.now)
	}
}

// countDenials counts the denials of limits that were asked, by rule and tier.
func (s *scratch) countDenials() {
	o := &s.outcome
	if o.Snapshot == nil || o.Status == http.StatusRequestEntityTooLarge {
		return
	}
	for i := range o.Verdicts {
		if v := &o.Verdicts[i]; !v.Decision.Allowed && v.Decision.Name != "" {
			o.Snapshot.CountDenial(v.Rule, v.Tier, v.Mode)
		}
	}
}

// ask asks the limits of the Verdicts, and sets their decisions, the Status and Err. It requests holds and
// reservations before it takes units, because holds and reservations can be given back without waiting for
// other nodes. If a limit denies, judge gives back those at other limits.
func (m *Middleware) ask(ctx context.Context, s *scratch) {
	o := &s.outcome
	if s.tooLarge() {
		o.Status = http.StatusRequestEntityTooLarge
		return
	}
	if err := m.admit(ctx, s); err != nil {
		m.setUndecided(s, err)
		return
	}
	if s.denied() {
		o.Status = s.denial()
		return
	}
	if err := m.takeUnits(ctx, s); err != nil {
		m.setUndecided(s, err)
		return
	}
	if s.denied() && !m.overrun(ctx, s) {
		if err := ctx.Err(); errors.Is(err, context.Canceled) {
			o.fail(err) // the overrun may not have been asked
			return
		}
		o.Status = s.denial()
		return
	}
	m.queue(ctx, s)
}

// setUndecided sets the outcome of a request if not all limits have decided. If the node is closed,
// the policies of the undecided limits decide.
func (m *Middleware) setUndecided(s *scratch, err error) {
	o := &s.outcome
	if !errors.Is(err, weir.ErrClosed) {
		o.fail(err)
		return
	}
	passes := true
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		if v.Decision.Name == "" {
			v.Decision = Unserved(v.Limiter.Limit())
		}
		passes = passes && !v.denies()
	}
	if !passes {
		o.fail(err)
		return
	}
	m.logUncounted(err)
}

// errCrowd is the error of a request that meets more than rules.MaxMet limits. rules.Parse cannot foresee
// such requests.
var errCrowd = fmt.Errorf("httplimit: a request meets more than %d limits because of repeated header lines or an escaped path", rules.MaxMet)

// meet makes a Verdict for each limit of the rules that the request meets, or refuses the request if the
// key of an enforced rule is blocked or ambiguous. A limit under which the request costs nothing has no
// Verdict.
func (m *Middleware) meet(s *scratch) {
	o := &s.outcome
	o.Verdicts, s.keys = o.Verdicts[:0], s.keys[:0]
	for _, rule := range s.rules {
		units := rule.Units(&s.request)
		estimate := units
		if rule.Estimates() {
			estimate = m.estimate(s, rule)
		}
		if units <= 0 && estimate <= 0 {
			continue
		}
		begin, critical := len(s.keys), o.Snapshot.IsCritical(rule, &s.request)
		var ok bool
		if s.keys, ok = rule.AppendKey(s.keys, &s.request); !ok {
			continue
		}
		for i := range rule.Limits {
			l := &rule.Limits[i]
			costs := estimate
			if l.InFlight() {
				costs = units
			}
			if costs <= 0 {
				continue
			}
			o.Verdicts = append(o.Verdicts, Verdict{})
			v := &o.Verdicts[len(o.Verdicts)-1]
			v.Rule, v.limit, v.Units, v.Critical, v.begin, v.end = rule, l, costs, critical, begin, len(s.keys)
		}
	}
	keys := string(s.keys) // a single string, so that each key is a substring
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		v.Key, v.Tier = keys[v.begin:v.end], s.request.Tier
		count := o.Snapshot.Count(v.limit, v.Tier, v.Key)
		v.Overrun = count.Soft
		v.Limiter, v.policy = count.LimiterFor(v.Critical)
		v.Units = count.Afford(v.Units, v.Limiter)
		if i > 0 && o.Verdicts[i-1].Rule == v.Rule {
			v.Mode = o.Verdicts[i-1].Mode
		} else {
			v.Mode = o.Snapshot.ModeFor(v.Rule, v.Key)
			if part := v.Rule.AmbiguousPart(&s.request); part != "" && v.Mode == rules.Enforce {
				o.refuseKey(part)
				return
			}
		}
		if b := o.Snapshot.KeyBlock(v.limit, v.Key); b != nil && v.Mode == rules.Enforce {
			o.refuseBy(b, m.now())
			return
		}
		v.asked = s.askedBy(v, v.limit.InFlight(), v.Rule.Reserves())
	}
}

// estimate returns the units to reserve for the request under a rule.
func (m *Middleware) estimate(s *scratch, rule *rules.Rule) int64 {
	units, ok := int64(0), false
	switch {
	case m.o.Reserve == nil:
	case s.functions != nil:
		units, ok = s.functions.Reserve(rule)
	default:
		units, ok = m.o.Reserve(s.http, rule)
	}
	if ok {
		return max(1, units)
	}
	return rule.Estimate(&s.request)
}

// tooLarge reports whether an enforced limit can never grant the units of the request.
func (s *scratch) tooLarge() (found bool) {
	for i := range s.outcome.Verdicts {
		v := &s.outcome.Verdicts[i]
		if v.Units == 1 || v.Mode != rules.Enforce {
			continue
		}
		if l := v.Limiter.Limit(); v.Units > rules.Capacity(l) {
			v.Decision.Name, v.Decision.Limit = l.Name, rules.Capacity(l)
			found = true
		}
	}
	return found
}

// takeUnits spends units at the limits whose units stay spent when the request ends, and records the
// decisions.
func (m *Middleware) takeUnits(ctx context.Context, s *scratch) error {
	s.asks = s.asks[:0]
	for i := range s.outcome.Verdicts {
		if v := &s.outcome.Verdicts[i]; v.asked == together {
			s.asks = append(s.asks, weir.Ask{Limiter: v.Limiter, Key: v.Key, Units: v.Units, Shadow: v.Mode == rules.Shadow})
		}
	}
	if len(s.asks) == 0 {
		return nil
	}
	var err error
	if s.decisions, err = m.node.AllowAllInto(ctx, s.asks, s.decisions); err != nil {
		return err
	}
	at := 0
	for i := range s.outcome.Verdicts {
		if v := &s.outcome.Verdicts[i]; v.asked == together {
			v.Decision = s.decisions[at]
			at++
		}
	}
	return nil
}

func (s *scratch) denied() bool {
	for i := range s.outcome.Verdicts {
		if s.outcome.Verdicts[i].denies() {
			return true
		}
	}
	return false
}

// denial returns the status of a denial: 503 if all limits that deny are FailedClosed, so that
// no count is known, and 429 otherwise.
func (s *scratch) denial() int {
	for i := range s.outcome.Verdicts {
		if v := &s.outcome.Verdicts[i]; v.denies() && v.Decision.Source != weir.FailedClosed {
			return http.StatusTooManyRequests
		}
	}
	return http.StatusServiceUnavailable
}

// overrun asks the limits together again, with overruns in place of the limits that deny. It does so
// only if each limit that denies has an overrun with enough units for the request, and none of them has
// failed closed. overrun reports whether the limits now admit the request. If they do not, or return
// an error, the first decisions stay.
func (m *Middleware) overrun(ctx context.Context, s *scratch) bool {
	o := &s.outcome
	at := 0
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		if v.asked != together {
			continue
		}
		ask := &s.asks[at]
		at++
		if !v.denies() {
			continue
		}
		if v.Overrun == nil || v.Decision.Source == weir.FailedClosed || v.Units > v.Overrun.Limit().Rate {
			return false
		}
		ask.Limiter = v.Overrun
	}
	var err error
	s.decisions, err = m.node.AllowAllInto(ctx, s.asks, s.decisions)
	if err != nil || !s.decisions.Allowed() {
		return false
	}
	at = 0
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		if v.asked != together {
			continue
		}
		if v.denies() {
			v.Soft, v.Decision.Allowed, v.Decision.RetryAfter = true, true, 0
		} else {
			v.Decision = s.decisions[at]
		}
		at++
	}
	return true
}

// refundTimeout is the maximum time for which a denial waits for its refunds, and for each release of a
// hold by its text.
const refundTimeout = time.Second

// giveBack refunds the units of takeUnits, because a queue did not admit the request.
func (s *scratch) giveBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refundTimeout)
	defer cancel()
	var errs []error
	for i := range s.outcome.Verdicts {
		v := &s.outcome.Verdicts[i]
		if v.asked != together || !v.Decision.Allowed {
			continue
		}
		spent := v.Limiter
		if v.Soft {
			spent = v.Overrun
		} else {
			v.Decision.Remaining += v.Units
		}
		if err := spent.Refund(ctx, v.Key, v.Units); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
