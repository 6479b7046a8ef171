package admin

import (
	"net/http"
	"time"

	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// debit spends units of a limit of the rules even if they exceed it, for a cost that is known only
// afterwards. The answer is allowed unless the rule is enforced and the limit is in debt or has failed closed.
func (a *api) debit(r *request) (int, any, error) {
	v, o, err := r.readQuestion(false)
	if err != nil {
		return 0, nil, err
	}
	if v.Mode != rules.Off {
		if err = r.checkKind(v.Limiter.Limit()); err == nil {
			v.Decision, err = v.Limiter.Debit(r.Context(), v.Key, v.Units)
		}
	} else {
		v.Decision = httplimit.Unasked(v.Limiter.Limit())
	}
	if err != nil {
		return 0, nil, err
	}
	httplimit.SetHeader(r.w.Header(), o)
	answer := showVerdict(v, time.Now())
	if v.Mode == rules.Shadow {
		answer.Allowed, answer.RetryAfterS = true, 0
	}
	return http.StatusOK, answer, nil
}

// refund returns units of a limit of the rules, or of the overrun of its rule.
func (a *api) refund(r *request) (int, any, error) {
	var soft bool
	v, _, err := r.readQuestion(false, field{name: "soft", into: &soft})
	if err != nil {
		return 0, nil, err
	}
	spent := v.Limiter
	if soft {
		spent = v.Overrun
	}
	if spent == nil {
		return 0, nil, refuse(http.StatusBadRequest, "soft is true, and the rule of %s allows no overrun: leave soft out", v.Limiter.Limit().Name)
	}
	if v.Mode != rules.Off {
		if err = r.checkKind(v.Limiter.Limit()); err == nil {
			err = spent.Refund(r.Context(), v.Key, v.Units)
		}
	}
	return http.StatusNoContent, nil, err
}
