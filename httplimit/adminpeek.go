package httplimit

import (
	"context"
	"net/http"

	"github.com/weir-go/weir"
)

// peek returns the response that take would return for one unit, but does not spend the unit. It
// also supports in_flight limits.
func (a *admin) peek(r *adminRequest) (int, any, error) {
	v, err := r.oneCount()
	if err != nil {
		return 0, nil, err
	}
	o := &Outcome{Snapshot: r.rules, Verdicts: []Verdict{v}}
	if asked := &o.Verdicts[0]; o.asks(asked) {
		if err := asked.peek(r.Context()); err != nil {
			return 0, nil, err
		}
	}
	return http.StatusOK, o.answer(r.w.Header()), nil
}

// peek sets v.Decision to the result of Limiter.Peek. If that is a denial but the overrun of the
// rule has units left, peek sets v.Soft and allows the request.
func (v *Verdict) peek(ctx context.Context) (err error) {
	v.Decision, err = v.limiter().Peek(ctx, v.Key)
	if err != nil || !v.denies() || v.overrun == nil || v.Decision.Source == weir.FailedClosed {
		return err
	}
	over, err := v.overrun.Peek(ctx, v.Key)
	if err == nil && over.Allowed {
		v.Soft, v.Decision.Allowed, v.Decision.RetryAfter = true, true, 0
	}
	return err
}
