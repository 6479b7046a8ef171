package httplimit

import (
	"fmt"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/ratelimit"
	"github.com/weir-go/weir/rules"
)

// one is the limit of ByLimiter.
type one struct {
	limiter  *weir.Limiter
	rule     *rules.Rule
	policy   string // item of the field RateLimit-Policy
	inFlight bool
	reserves bool // units are settled when the request ends
}

// ByLimiter returns a Middleware with a single limit, without a file of rules. Each request spends
// a unit, or the units of Options.Reserve, of the count that Options.Key selects. If the limit is
// InFlight, the request holds a unit until it ends. Fields, bodies, queues, clients that leave and
// closed nodes are handled as with rules. Outcomes have no Snapshot. The error is weir.ErrInvalid
// with the invalid option.
//
// For several limits that admit a request together, use New with rules, or weir.Node.AllowAll in a
// handler. Chained Middlewares decide one after the other: if a later one denies, the units of the
// earlier ones stay spent, unless their Count or Settle refunds them.
func ByLimiter(l *weir.Limiter, o Options) (*Middleware, error) {
	if l == nil {
		return nil, fmt.Errorf("%w httplimit.ByLimiter: the Limiter is nil: pass one that Node.Limiter returned", weir.ErrInvalid)
	}
	limit := l.Limit()
	if err := o.validateFor(&limit); err != nil {
		return nil, err
	}
	return newMiddleware(&Middleware{node: l.Node(), o: o, one: &one{
		limiter: l, rule: rules.Single(limit.Name, o.Key != nil, o.Queue),
		policy: string(ratelimit.AppendPolicy(nil, limit, false)), inFlight: limit.Algorithm == weir.InFlight,
		reserves: o.Count != nil || o.Settle != nil,
	}})
}

// validateFor returns an error for options that have no effect or no meaning with a single limit.
func (o *Options) validateFor(limit *weir.Limit) error {
	if err := o.validateWithoutRules(); err != nil {
		return err
	}
	settles := o.Count != nil || o.Settle != nil || o.Reserve != nil
	switch {
	case o.Critical != nil && limit.Keep == 0:
		return fmt.Errorf("%w Options.Critical: limit %q keeps no units: set Limit.Keep, or leave Critical out", weir.ErrInvalid, limit.Name)
	case o.MaxWaiting != 0 && o.Queue == 0:
		return fmt.Errorf("%w Options.MaxWaiting: %d without Queue: no request waits: set Queue, or leave MaxWaiting out", weir.ErrInvalid, o.MaxWaiting)
	case o.Queue < 0 || o.Queue > 0 && limit.Algorithm != weir.LeakyBucket && limit.Algorithm != weir.InFlight:
		return fmt.Errorf("%w Options.Queue: %v with a limit that is a %v: use a positive time and a LeakyBucket or InFlight, or leave Queue out", weir.ErrInvalid, o.Queue, limit.Algorithm)
	case settles && limit.Algorithm == weir.InFlight:
		return fmt.Errorf("%w Options.Count, Reserve and Settle: %q is in_flight, whose units come back when the request ends: leave them out", weir.ErrInvalid, limit.Name)
	case settles && o.Queue > 0:
		return fmt.Errorf("%w Options.Queue with Count, Reserve or Settle: the units of a queued request cannot be refunded: set Queue or the others, not both", weir.ErrInvalid)
	case o.Reserve != nil && o.Settle == nil:
		return fmt.Errorf("%w Options.Reserve without Settle: nothing would replace the estimate: set both", weir.ErrInvalid)
	case !o.NoIETFHeaders && strings.ContainsFunc(limit.Name, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }):
		return fmt.Errorf("%w httplimit.ByLimiter: header fields cannot carry the limit's name %q: use letters, digits and spaces, or set Options.NoIETFHeaders", weir.ErrInvalid, limit.Name)
	}
	return nil
}

// validateWithoutRules returns an error for options that only rules use.
func (o *Options) validateWithoutRules() error {
	switch {
	case o.User != nil || o.APIKey != nil || o.Tier != nil || o.Claim != nil:
		return fmt.Errorf("%w Options.User, APIKey, Tier and Claim: only rules use them: set Key, or call New with rules", weir.ErrInvalid)
	case o.OnWarn != nil:
		return fmt.Errorf("%w Options.OnWarn: only rules have warnings: leave it out, or call New with rules", weir.ErrInvalid)
	case o.MaxBody != 0:
		return fmt.Errorf("%w Options.MaxBody: %d: only rules reserve units by the request body: leave MaxBody out, or call New with rules", weir.ErrInvalid, o.MaxBody)
	}
	return nil
}

// meet is like Middleware.meet, for a single limit.
func (l *one) meet(m *Middleware, s *scratch) {
	s.keys, _ = l.rule.AppendKey(s.keys[:0], &s.request) // never fails, because the address replaces a missing key
	s.outcome.Verdicts = append(s.outcome.Verdicts[:0], Verdict{Rule: l.rule, Limiter: l.limiter, Key: string(s.keys), Units: 1, policy: l.policy})
	v := &s.outcome.Verdicts[0]
	v.asked = s.askedBy(v, l.inFlight, l.reserves)
	if s.request.Critical {
		v.Critical, v.Limiter, v.policy = true, l.limiter.Critical(), ""
	}
	if m.o.Reserve != nil {
		v.Units = m.estimate(s, l.rule)
	}
}
