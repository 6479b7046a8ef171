package admin

import (
	"context"
	"net/http"

	"github.com/weir-go/weir/httplimit"
)

// peek returns the response that take would return for one unit, but does not spend the unit. It
// also supports in_flight limits.
func (a *admin) peek(r *adminRequest) (int, any, error) {
	v, err := r.oneCount()
	if err != nil {
		return 0, nil, err
	}
	o := &httplimit.Outcome{Snapshot: r.rules, Verdicts: []httplimit.Verdict{v}}
	if asked := &o.Verdicts[0]; mustAsk(o, asked) {
		if err := peek(r.Context(), asked); err != nil {
			return 0, nil, err
		}
	}
	return http.StatusOK, answerOfOne(o, r.w.Header()), nil
}

// peek sets v.Decision to the result of Limiter.Peek. If that is a denial but the overrun of the
// rule has units left, peek sets v.Soft and allows the request.
func peek(ctx context.Context, v *httplimit.Verdict) (err error) {
	v.Decision, err = limiterOf(v).Peek(ctx, v.Key)
	if err != nil || !mayOverrun(v) {
		return err
	}
	over, err := v.Overrun.Peek(ctx, v.Key)
	if err == nil && over.Allowed {
		v.Soft, v.Decision.Allowed, v.Decision.RetryAfter = true, true, 0
	}
	return err
}
