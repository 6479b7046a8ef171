package httplimit

import (
	"net/http"
	"strings"
)

// HeaderValue is a function for Options that reads a header field: empty if it is
// not there, or there twice. It is worth as much as the setter of the field, such as a
// proxy of yours that has looked up the user and writes over what the client sent:
// of API keys that nobody has checked, each that is made up has a fresh count.
func HeaderValue(field string) func(*http.Request) string {
	field = http.CanonicalHeaderKey(field)
	return func(r *http.Request) string {
		if lines := r.Header[field]; len(lines) == 1 {
			return lines[0]
		}
		return ""
	}
}

// BearerToken is a function for Options.APIKey: the token in Authorization (RFC
// 6750), empty if there is none.
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
