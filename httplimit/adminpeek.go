package httplimit

import (
	"context"
	"net/http"

	"github.com/weir-go/weir"
)

// peek answers as take would for one unit, and spends nothing. It takes in_flight limits too.
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

// peek records what the limit would answer, or the overrun that its rule allows.
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
