package httplimit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/weir-go/weir/internal/ratelimit"
)

// Problem types of the IANA registry, which were registered by the draft that
// internal/ratelimit implements.
const (
	quotaExceeded    = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	reducedCapacity  = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	noTypeOfProblem  = "about:blank"
	retryAfterField  = "Retry-After"
	outageRetryAfter = 1 // seconds
)

// Problem is an error in the form that clients receive (RFC 9457).
type Problem struct {
	Type     string   `json:"type"` // about:blank if the status is sufficient
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Violated []string `json:"violated-policies,omitempty"` // names of the limits that denied
}

// denialJSON is the de facto standard body.
type denialJSON struct {
	Error      string `json:"error"`
	Message    string `json:"message"`
	RetryAfter int64  `json:"retry_after,omitempty"` // seconds
}

// retryAfter returns RetryAfter in whole seconds, at least 1, for a denial that ends with
// time.
func (o *Outcome) retryAfter() int64 {
	return max(ratelimit.Seconds(o.RetryAfter()), outageRetryAfter)
}

// Problem returns the description of a denial for the client, or zero without a Status.
func (o *Outcome) Problem() Problem {
	if o.Status == 0 {
		return Problem{}
	}
	p := Problem{Type: noTypeOfProblem, Title: http.StatusText(o.Status), Status: o.Status, Violated: o.Violated(nil)}
	names := `"` + strings.Join(p.Violated, `", "`) + `"`
	switch o.Status {
	case http.StatusTooManyRequests:
		p.Type = quotaExceeded
		p.Detail = fmt.Sprintf("rate limit exceeded (%s): try again in %d s", names, o.retryAfter())
		if o.Banned() {
			p.Detail = fmt.Sprintf("banned after too many denied requests (%s): try again in %d s", names, o.retryAfter())
		}
	case http.StatusRequestEntityTooLarge:
		p.Detail = fmt.Sprintf("the request costs more than its limit can ever grant (%s)", names)
	case http.StatusForbidden:
		p.Detail = "requests of this client are denied"
		if o.blockedFor > 0 {
			p.Detail += fmt.Sprintf(": try again in %d s", o.retryAfter())
		}
	case http.StatusBadRequest:
		p.Detail = o.Err.Error()
	case StatusClientGone:
		p.Title, p.Detail = "Client Closed Request", "the client is gone"
	default:
		p.Type = reducedCapacity
		p.Detail = fmt.Sprintf("requests cannot be counted at the moment: try again in %d s", o.retryAfter())
	}
	return p
}

// Body returns the body of a denial in the form that the client prefers, according to its lines
// of Accept. docs/http.md lists the forms.
func (o *Outcome) Body(accept []string) (contentType string, body []byte) {
	p := o.Problem()
	var answer any = p
	contentType = "application/problem+json"
	switch formFor(accept) {
	case asJSON:
		d := denialJSON{Message: p.Detail}
		switch o.Status {
		case http.StatusTooManyRequests:
			d.Error, d.RetryAfter = "rate_limit_exceeded", o.retryAfter()
			if o.Banned() {
				d.Error = "banned"
			}
		case http.StatusRequestEntityTooLarge:
			d.Error = "request_too_large"
		case http.StatusForbidden:
			d.Error = "denied"
			if o.blockedFor > 0 {
				d.RetryAfter = o.retryAfter()
			}
		case http.StatusBadRequest:
			d.Error = "ambiguous_path"
		default:
			d.Error, d.RetryAfter = "temporarily_unavailable", o.retryAfter()
		}
		answer, contentType = d, "application/json"
	case asText:
		return "text/plain; charset=utf-8", []byte(p.Detail + "\n")
	}
	text, _ := json.Marshal(answer) // never fails for texts and numbers
	return contentType, append(text, '\n')
}

// write answers a request that is not admitted, without reading the body of the request.
func (o *Outcome) write(w http.ResponseWriter, r *http.Request) {
	contentType, body := o.Body(r.Header["Accept"])
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(o.Status)
	if r.Method != http.MethodHead {
		w.Write(body)
	}
}
