package admin

import (
	"context"
	"net/http"

	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// peek returns the response that take would return, but spends nothing. peek also accepts in_flight limits.
func (a *api) peek(r *request) (int, any, error) {
	v, o, err := r.readQuestion(true)
	if err == nil {
		err = checkPossible(o)
	}
	if err == nil && mustAsk(o, v) {
		err = peek(r.Context(), v)
	}
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, showOnly(o, r.w.Header()), nil
}

// peek sets v.Decision to the result of Limiter.PeekN. If that is a denial and the overrun of the rule
// would grant the units, peek sets v.Soft and allows the request.
func peek(ctx context.Context, v *httplimit.Verdict) (err error) {
	v.Decision, err = askedLimiter(v).PeekN(ctx, v.Key, v.Units)
	if err != nil || !mayOverrun(v) || v.Units > rules.Capacity(v.Overrun.Limit()) {
		return err
	}
	over, err := v.Overrun.PeekN(ctx, v.Key, v.Units)
	if err == nil && over.Allowed {
		v.Soft, v.Decision.Allowed, v.Decision.RetryAfter = true, true, 0
	}
	return err
}
