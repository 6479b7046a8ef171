package admin

import (
	"context"
	"net/http"

	"github.com/weir-go/weir/httplimit"
)

// peek returns the response that take would return for a unit, but spends nothing. peek also accepts
// in_flight limits.
func (a *api) peek(r *request) (int, any, error) {
	of := question{units: 1}
	v, err := r.readVerdict(&of, append(of.countFields(), field{name: "critical", into: &of.critical}))
	if err != nil {
		return 0, nil, err
	}
	o := &httplimit.Outcome{Snapshot: r.rules, Verdicts: []httplimit.Verdict{v}}
	if asked := &o.Verdicts[0]; mustAsk(o, asked) {
		if err := peek(r.Context(), asked); err != nil {
			return 0, nil, err
		}
	}
	return http.StatusOK, showOnly(o, r.w.Header()), nil
}

// peek sets v.Decision to the result of Limiter.Peek. If that is a denial and the overrun of the rule
// would grant a unit, peek sets v.Soft and allows the request.
func peek(ctx context.Context, v *httplimit.Verdict) (err error) {
	v.Decision, err = askedLimiter(v).Peek(ctx, v.Key)
	if err != nil || !mayOverrun(v) {
		return err
	}
	over, err := v.Overrun.Peek(ctx, v.Key)
	if err == nil && over.Allowed {
		v.Soft, v.Decision.Allowed, v.Decision.RetryAfter = true, true, 0
	}
	return err
}
