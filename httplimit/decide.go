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

// scratch is what deciding on a request works with, kept from one to the next. What is of a
// request is dropped by forget before the scratch is used again: a field that forget leaves
// would show one client what another one asked.
type scratch struct {
	web       web               // the exchange of Handler
	http      *http.Request     // nil for what is no request of net/http
	functions ExchangeFunctions // in the place of those of the options; nil without them
	request   rules.Request
	rules     []*rules.Rule
	keys      []byte
	asks      []weir.Ask
	decisions weir.Decisions
	header    []byte
	names     [maxFields]string
	outcome   Outcome
	ends      bool          // the caller ends the admission
	ttl       time.Duration // of the holds of a client that ends it by texts; 0 if a handler ends it
	admission *Admission    // what the request has until it ends; nil if nothing
}

// forget drops what belongs to a request, and keeps the room.
func (s *scratch) forget() {
	clear(s.rules)
	clear(s.outcome.Verdicts)
	clear(s.asks)
	clear(s.decisions)
	s.web, s.http, s.functions, s.request, s.ends, s.ttl, s.admission = web{}, nil, nil, rules.Request{}, false, 0, nil
	s.outcome = Outcome{Verdicts: s.outcome.Verdicts[:0]}
}

// decide has all limits that the request meets decide together, and fills in the
// outcome. One Snapshot is all that it looks at.
func (m *Middleware) decide(ctx context.Context, s *scratch) {
	o := &s.outcome
	if m.one != nil {
		m.one.meet(m, s)
		m.judge(ctx, s)
		return
	}
	o.Snapshot = m.book.Current()
	s.rules = o.Snapshot.Match(&s.request, s.rules[:0])
	m.meet(s)
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

// Judge has the limits of the Verdicts decide together, as they decide on a request that meets their
// rules, and sets the Decisions, Soft, the Status and Err. The caller has set the Snapshot, and of each
// Verdict the Rule, the Limiter, the Key, the Units and the Overrun. No limit has the caller wait in a
// queue. The Err is ErrNoEnd for an enforced in_flight limit.
func (m *Middleware) Judge(ctx context.Context, o *Outcome) {
	s := scratch{outcome: *o}
	for i := range o.Verdicts {
		if v := &o.Verdicts[i]; v.Limiter.Limit().Algorithm == weir.InFlight {
			v.asked = forHold
		}
	}
	m.judge(ctx, &s)
	*o = s.outcome
}

// judge has the limits of the Verdicts decide together, and fills in the rest of the
// outcome.
func (m *Middleware) judge(ctx context.Context, s *scratch) {
	m.ask(ctx, s)
	if s.admission != nil && s.outcome.Status != 0 {
		s.abandon()
	}
}

// ask is judge, but for what a request has that another limit denies. What can be given back
// without waiting for anybody comes first.
func (m *Middleware) ask(ctx context.Context, s *scratch) {
	o := &s.outcome
	if s.tooLarge() {
		o.Status = http.StatusRequestEntityTooLarge
		return
	}
	if err := m.admit(ctx, s); err != nil {
		m.unjudged(s, err)
		return
	}
	if s.denied() {
		o.Status = s.denial()
		return
	}
	if err := m.take(ctx, s); err != nil {
		m.unjudged(s, err)
		return
	}
	if s.denied() && !m.overrun(ctx, s) {
		if err := ctx.Err(); errors.Is(err, context.Canceled) {
			o.fail(err) // it may be that the overrun was not asked
			return
		}
		o.Status = s.denial()
		return
	}
	m.queue(ctx, s)
}

// unjudged fills in the outcome of a request whose limits have not all decided. Where
// the node is closed, the policies of those that have not decide.
func (m *Middleware) unjudged(s *scratch, err error) {
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

// errCrowd is for what rules.Parse cannot foresee.
var errCrowd = fmt.Errorf("httplimit: a request meets more than %d limits because of repeated header lines or an escaped path", rules.MaxMet)

// meet looks up what the rules want of the request: a Verdict for each of their
// limits. Those that it costs nothing are none.
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
		begin := len(s.keys)
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
			v.Rule, v.limit, v.Units, v.begin, v.end = rule, l, costs, begin, len(s.keys)
		}
	}
	keys := string(s.keys) // one text, of which each key is a part
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		v.Key = keys[v.begin:v.end]
		count := o.Snapshot.Count(v.limit, s.request.Tier, v.Key)
		v.Limiter, v.Overrun, v.policy = count.Limiter, count.Soft, count.Policy
		v.asked = s.askedBy(v.Rule, v.limit.InFlight(), v.Rule.Reserves())
	}
}

// estimate returns what the request may cost under a rule.
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

// tooLarge reports whether an enforced limit can never grant what the request
// costs.
func (s *scratch) tooLarge() (is bool) {
	for i := range s.outcome.Verdicts {
		v := &s.outcome.Verdicts[i]
		if v.Units == 1 || v.Rule.Shadow {
			continue
		}
		if l := v.Limiter.Limit(); v.Units > rules.Capacity(l) {
			v.Decision.Name, v.Decision.Limit = l.Name, rules.Capacity(l)
			is = true
		}
	}
	return is
}

// take asks the limits whose units stay spent, and notes their answers.
func (m *Middleware) take(ctx context.Context, s *scratch) error {
	s.asks = s.asks[:0]
	for i := range s.outcome.Verdicts {
		if v := &s.outcome.Verdicts[i]; v.asked == together {
			s.asks = append(s.asks, weir.Ask{Limiter: v.Limiter, Key: v.Key, Units: v.Units, Shadow: v.Rule.Shadow})
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

// denial is the status for those of the limits that deny: it is the client's fault
// if any of them knows its count.
func (s *scratch) denial() int {
	for i := range s.outcome.Verdicts {
		if v := &s.outcome.Verdicts[i]; v.denies() && v.Decision.Source != weir.FailedClosed {
			return http.StatusTooManyRequests
		}
	}
	return http.StatusServiceUnavailable
}

// overrun asks once more, where all limits that deny have an overrun that may
// admit the request, with those in their places. Whatever it answers is decided
// together, too; if it is no, the first answers stand.
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

// refundTimeout is the most that a denial waits until what it costs is given back.
const refundTimeout = time.Second

// giveBack refunds what take has spent, as a queue denies.
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
