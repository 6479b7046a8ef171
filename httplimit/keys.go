package httplimit

import (
	"net/http"
	"strings"
)

// HeaderValue returns a function for Options that returns the value of a header field. It
// returns "" if the field is missing or has several lines. The field is as trustworthy as the
// party that sets it, such as a proxy of yours that has identified the user and overwrites the
// field of the client. If the field has API keys that are not verified, each invented key has a
// new count.
func HeaderValue(field string) func(*http.Request) string {
	field = http.CanonicalHeaderKey(field)
	return func(r *http.Request) string {
		if lines := r.Header[field]; len(lines) == 1 {
			return lines[0]
		}
		return ""
	}
}

// BearerToken is a function for Options.APIKey that returns the token in Authorization (RFC
// 6750), or "".
func BearerToken(r *http.Request) string {
	lines := r.Header["Authorization"]
	if len(lines) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.Trim(token, " ")
}
