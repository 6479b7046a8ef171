package admin

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/ratelimit"
)

// checkPrefix begins the names of limits that requests to POST /v1/check define. No limit of a rule has
// a name with this prefix.
const checkPrefix = "/check/"

type checkAnswer struct {
	Allowed     bool  `json:"allowed"`
	Remaining   int64 `json:"remaining"`
	ResetMS     int64 `json:"reset_ms"`
	RetryAfterS int64 `json:"retry_after_s"`
}

const (
	maxCheckWindow    = 366 * 24 * time.Hour
	maxCheckNameBytes = 128
)

// check decides by a SlidingWindow limit that the request contains. It is for services that
// have neither a node nor rules.
func (a *api) check(r *request) (int, any, error) {
	var (
		key, name     string
		limit, window int64
		weight        int64 = 1
	)
	if err := r.body(
		field{name: "key", into: &key, required: true, most: maxKeyBytes}, field{name: "limit", into: &limit, required: true, least: 1, most: maxUnits},
		field{name: "window_ms", into: &window, required: true, least: 1, most: maxCheckWindow.Milliseconds()}, field{name: "weight", into: &weight, most: maxUnits},
		field{name: "name", into: &name, most: maxCheckNameBytes},
	); err != nil {
		return 0, nil, err
	}
	if weight > limit {
		return 0, nil, refuse(http.StatusRequestEntityTooLarge, "weight is %d: more than the limit of %d can ever grant", weight, limit)
	}
	if name == "" {
		name = fmt.Sprintf("%d/%d", limit, window)
	}
	l, err := a.node.Limiter(weir.Limit{Name: checkPrefix + name, Rate: limit, Per: time.Duration(window) * time.Millisecond})
	if err != nil {
		return 0, nil, err
	}
	var d weir.Decision
	if weight == 0 {
		d, err = l.Peek(r.Context(), key)
		d.Allowed, d.RetryAfter = true, 0
	} else {
		d, err = l.AllowN(r.Context(), key, weight)
	}
	if err != nil {
		return 0, nil, err
	}
	if !d.Allowed { // callers may forward the header
		r.w.Header().Set("Retry-After", strconv.FormatInt(ratelimit.Seconds(d.RetryAfter), 10))
	}
	return http.StatusOK, checkAnswer{d.Allowed, d.Remaining, int64((d.ResetAfter + time.Millisecond - 1) / time.Millisecond), ratelimit.Seconds(d.RetryAfter)}, nil
}
