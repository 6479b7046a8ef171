package admin

import (
	"fmt"
	"net/http"
	"time"

	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/ratelimit"
)

// maxTakes is the maximum number of takes in a request.
const maxTakes = 64

// takeAllAnswer is the response to POST /v1/take_all.
type takeAllAnswer struct {
	Allowed     bool   `json:"allowed"`
	RetryAfterS int64  `json:"retry_after_s"`
	Takes       []Take `json:"takes"`
}

// takeAll asks several limits of the rules for units. If an enforced limit denies, nothing is spent under
// any of them.
func (a *api) takeAll(r *request) (int, any, error) {
	var takes []question
	if err := r.body(field{name: "takes", required: true, into: list{maxTakes, func(object func(...field)) {
		var t question
		object(r.questionFields(&t, true)...)
		takes = append(takes, t)
	}}}); err != nil {
		return 0, nil, err
	}
	o := &httplimit.Outcome{Snapshot: r.rules}
	for i := range takes {
		v, err := takes[i].newVerdict(r.rules)
		if err != nil {
			return 0, nil, err
		}
		o.Verdicts = append(o.Verdicts, v)
	}
	if err := a.judge(r.Context(), o); err != nil {
		return 0, nil, fmt.Errorf("takes: %w", err)
	}
	answer := takeAllAnswer{Allowed: o.Status == 0}
	if !answer.Allowed {
		answer.RetryAfterS = ratelimit.Seconds(o.RetryAfter())
	}
	now := time.Now()
	for i := range o.Verdicts {
		answer.Takes = append(answer.Takes, showVerdict(&o.Verdicts[i], now))
	}
	httplimit.SetHeader(r.w.Header(), o)
	return http.StatusOK, answer, nil
}
