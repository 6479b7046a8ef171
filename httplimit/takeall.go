package httplimit

import (
	"fmt"
	"net/http"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/ratelimit"
)

// adminMaxTakes is how many limits one question may ask.
const adminMaxTakes = 64

// takeAllAnswer is what several limits say together.
type takeAllAnswer struct {
	Allowed     bool         `json:"allowed"`
	RetryAfterS int64        `json:"retry_after_s"`
	Takes       []takeAnswer `json:"takes"`
}

// takeAll asks several limits of the rules for units: all admit, or nothing is spent. A
// limit whose rule is a shadow has no say.
func (a *admin) takeAll(r *adminRequest) (int, any, error) {
	s, err := a.current()
	if err != nil {
		return 0, nil, err
	}
	var takes []taking
	if err := r.body(adminField{name: "takes", required: true, into: adminList{adminMaxTakes, func(object func(...adminField)) {
		var t taking
		object(t.fields()...)
		takes = append(takes, t)
	}}}); err != nil {
		return 0, nil, err
	}
	var wrong adminWrongs
	for i := range takes {
		var of adminWrongs
		takes[i].check(&of, s)
		for _, problem := range of {
			wrong.add("takes[%d]: %s", i, problem)
		}
	}
	if err := wrong.err(); err != nil {
		return 0, nil, err
	}
	asks := make([]weir.Ask, len(takes))
	for i := range takes {
		t := &takes[i]
		if err := t.resolve(s); err != nil {
			return 0, nil, err
		}
		if !t.rule.Shadow {
			if err := t.possible(); err != nil {
				return 0, nil, err
			}
		}
		asks[i] = weir.Ask{Limiter: t.limiter, Key: t.key, Units: t.units, Shadow: t.rule.Shadow}
	}
	ds, err := a.node.AllowAll(r.Context(), asks...)
	if err != nil {
		return 0, nil, fmt.Errorf("takes: %w", err)
	}
	answer := takeAllAnswer{Allowed: ds.Allowed()}
	if !answer.Allowed {
		d := ds.Strictest()
		answer.RetryAfterS = ratelimit.Seconds(d.RetryAfter)
		tellRetry(r.w.Header(), &d)
	}
	now := time.Now()
	var policies, states []byte
	for i := range takes {
		t := &takes[i]
		answer.Takes = append(answer.Takes, t.answer(ds[i], now))
		if t.rule.Shadow || ds[i].Source == 0 {
			continue // not enforced, or nothing is known of it
		}
		policies = ratelimit.AppendPolicy(separate(policies, 0), t.limiter.Limit(), false)
		states = ratelimit.AppendState(separate(states, 0), &ds[i], t.limiter)
	}
	if len(policies) > 0 {
		r.w.Header().Set(ratelimit.PolicyField, string(policies))
		r.w.Header().Set(ratelimit.StateField, string(states))
	}
	return http.StatusOK, answer, nil
}
