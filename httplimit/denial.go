package httplimit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/weir-go/weir/internal/ratelimit"
)

// Problem types of the IANA registry, which the draft of internal/ratelimit has
// registered.
const (
	quotaExceeded    = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	reducedCapacity  = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	noTypeOfProblem  = "about:blank"
	retryAfterField  = "Retry-After"
	outageRetryAfter = 1 // seconds
)

// denialJSON is the de facto body.
type denialJSON struct {
	Error      string `json:"error"`
	Message    string `json:"message"`
	RetryAfter int64  `json:"retry_after,omitempty"` // seconds
}

// deny answers a request that goes no further. Nobody may keep the answer: it is
// one client's, and of this moment. The body of the request is not read.
func deny(w http.ResponseWriter, r *http.Request, o *Outcome) {
	p := problem{Title: http.StatusText(o.Status), Status: o.Status, Violated: o.Violated(nil)}
	body := denialJSON{RetryAfter: max(ratelimit.Seconds(o.RetryAfter()), outageRetryAfter)}
	names := quoted(p.Violated)
	switch o.Status {
	case http.StatusTooManyRequests:
		p.Type, body.Error = quotaExceeded, "rate_limit_exceeded"
		p.Detail = fmt.Sprintf("rate limit exceeded (%s): try again in %d s", names, body.RetryAfter)
	case http.StatusRequestEntityTooLarge:
		p.Type, body.Error, body.RetryAfter = noTypeOfProblem, "request_too_large", 0
		p.Detail = fmt.Sprintf("the request costs more than its limit can ever grant (%s)", names)
	case http.StatusBadRequest:
		p.Type, body.Error, body.RetryAfter = noTypeOfProblem, "ambiguous_path", 0
		p.Detail = o.Err.Error()
	default:
		p.Type, body.Error = reducedCapacity, "temporarily_unavailable"
		p.Detail = fmt.Sprintf("requests cannot be counted at the moment: try again in %d s", body.RetryAfter)
	}
	h := w.Header()
	if body.RetryAfter > 0 {
		h.Set(retryAfterField, strconv.FormatInt(body.RetryAfter, 10))
	}
	body.Message = p.Detail
	switch formFor(r.Header) {
	case asProblem:
		writeProblem(w, r, &p)
	case asJSON:
		text, _ := json.Marshal(body) // texts and numbers always have a form
		write(w, r, o.Status, "application/json", append(text, '\n'))
	case asText:
		write(w, r, o.Status, "text/plain; charset=utf-8", []byte(p.Detail+"\n"))
	}
}

func write(w http.ResponseWriter, r *http.Request, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		w.Write(body)
	}
}

// quoted is names in a sentence: "a", "b".
func quoted(names []string) string { return `"` + strings.Join(names, `", "`) + `"` }
