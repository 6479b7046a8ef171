package httplimit

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/ratelimit"
	"github.com/weir-go/weir/rules"
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

	UpgradeURL string `json:"upgrade_url,omitempty"` // URL from the texts of the rule that denied
}

// denialJSON is the de facto standard body.
type denialJSON struct {
	Error      string `json:"error"`
	Message    string `json:"message"`
	RetryAfter int64  `json:"retry_after,omitempty"` // seconds
	UpgradeURL string `json:"upgrade_url,omitempty"`
}

// ownTexts are the texts of the rules for a denial.
type ownTexts struct {
	*rules.Denied
	by int // index of the Verdict whose limit they describe
	at time.Time
}

// chooseTexts sets the texts of a denial with 429. They are those of the limit with the longest wait,
// among the limits that deny by their counts and whose rules have texts.
func (o *Outcome) chooseTexts(now func() time.Time) {
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		if !v.denies() || v.Decision.Source == weir.FailedClosed {
			continue
		}
		if d := v.Rule.Denied(v.Tier); d != nil && (o.texts == nil || v.Decision.RetryAfter > o.Verdicts[o.texts.by].Decision.RetryAfter) {
			o.texts = &ownTexts{Denied: d, by: i, at: now()}
		}
	}
}

// valueOf returns the value of a placeholder. The value never contains text that a client has sent.
func (o *Outcome) valueOf(name string) string {
	v := &o.Verdicts[o.texts.by]
	l := v.Limiter.Limit()
	switch name {
	case "limit":
		return strconv.FormatInt(v.Decision.Limit, 10)
	case "remaining":
		return strconv.FormatInt(v.Decision.Remaining, 10)
	case "units":
		return strconv.FormatInt(v.Units, 10)
	case "retry_after":
		return strconv.FormatInt(o.retryAfter(), 10)
	case "reset":
		return o.texts.at.Add(time.Duration(o.retryAfter()) * time.Second).UTC().Format(time.RFC3339)
	case "window":
		return windowOf(l)
	case "rule":
		return v.Rule.Name
	case "name":
		return l.Name
	}
	return o.Snapshot.Tier(v.Tier)
}

// replaceTexts replaces the texts of a Problem by those of the rule.
func (o *Outcome) replaceTexts(p *Problem) {
	if o.texts == nil {
		return
	}
	if o.texts.Title != nil {
		p.Title = o.texts.Title.Expand(o.valueOf)
	}
	if o.texts.Detail != nil {
		p.Detail = o.texts.Detail.Expand(o.valueOf)
	}
	p.UpgradeURL = o.texts.UpgradeURL.Expand(func(name string) string { return url.PathEscape(o.valueOf(name)) })
}

// page returns the HTML page of a denial. The rule must have texts.
func (o *Outcome) page(p *Problem) string {
	title, detail, link := html.EscapeString(p.Title), html.EscapeString(p.Detail), html.EscapeString(p.UpgradeURL)
	if o.texts.HTML == nil {
		page := `<!DOCTYPE html><meta charset="utf-8"><title>` + title + "</title><h1>" + title + "</h1><p>" + detail + "</p>"
		if link != "" {
			page += `<p><a href="` + link + `">` + link + "</a></p>"
		}
		return page + "\n"
	}
	return o.texts.HTML.Expand(func(name string) string {
		switch name {
		case "title":
			return title
		case "detail":
			return detail
		case "upgrade_url":
			return link
		}
		return html.EscapeString(o.valueOf(name))
	})
}

// setOwnFields sets the header fields of the rule for a denial.
func (o *Outcome) setOwnFields(set func(names, values []string)) {
	if o.texts == nil || len(o.texts.Headers) == 0 {
		return
	}
	var names, values []string
	for _, h := range o.texts.Headers {
		names, values = append(names, h.Name), append(values, h.Value.Expand(o.valueOf))
	}
	set(names, values)
}

// retryAfter returns RetryAfter in whole seconds, at least 1, for a denial that ends with
// time.
func (o *Outcome) retryAfter() int64 {
	return max(ratelimit.Seconds(o.RetryAfter()), outageRetryAfter)
}

// Problem returns the description of a denial for the client. If Status is 0, it returns the zero Problem.
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
		o.replaceTexts(&p)
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
	switch form := formFor(accept); {
	case form == asHTML && o.texts != nil:
		return "text/html; charset=utf-8", []byte(o.page(&p))
	case form == asJSON:
		d := denialJSON{Message: p.Detail, UpgradeURL: p.UpgradeURL}
		switch o.Status {
		case http.StatusTooManyRequests:
			d.Error, d.RetryAfter = "rate_limit_exceeded", o.retryAfter()
			if o.Banned() {
				d.Error = "banned"
			}
		case http.StatusRequestEntityTooLarge:
			d.Error = "request_too_large"
		case http.StatusForbidden:
			d.Error = "blocked"
			if o.blockedFor > 0 {
				d.RetryAfter = o.retryAfter()
			}
		case http.StatusBadRequest:
			d.Error = "ambiguous_path"
			if _, ok := o.Err.(ambiguousKey); ok {
				d.Error = "ambiguous_key"
			}
		default:
			d.Error, d.RetryAfter = "temporarily_unavailable", o.retryAfter()
		}
		answer, contentType = d, "application/json"
	case form == asText || form == asHTML:
		text := p.Detail + "\n"
		if p.UpgradeURL != "" {
			text += p.UpgradeURL + "\n"
		}
		return "text/plain; charset=utf-8", []byte(text)
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
