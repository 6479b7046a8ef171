package httplimit

import (
	"strconv"
	"strings"
)

// form is the format of the body of a denial.
type form uint8

const (
	asProblem form = iota
	asJSON
	asText
	asHTML // the same as asText, unless the rule has texts of its own
	forms
)

// mediaTypes are the media types of the forms.
var mediaTypes = [forms]string{"application/problem+json", "application/json", "text/plain", "text/html"}

// maxAcceptBytes is the maximum number of bytes of Accept that are read.
const maxAcceptBytes = 1 << 10

// formFor returns the form that a client prefers (RFC 9110, section 12.5.1). Of several equally
// preferred forms, formFor returns the form that the client names most precisely, or else the first. If
// the client accepts no form, formFor returns asProblem, because a status without a reason is of no use.
func formFor(lines []string) form {
	var (
		quality  [forms]float64
		precise  [forms]int // precision of the most precise media range for a form: */* is 1, text/* 2, text/plain 3
		accepted = strings.Join(lines, ",")
	)
	for part := range strings.SplitSeq(accepted[:min(len(accepted), maxAcceptBytes)], ",") {
		media, parameters, _ := strings.Cut(part, ";")
		media = strings.ToLower(strings.TrimSpace(media))
		q := qualityOf(parameters)
		for f := range forms {
			if p := precision(media, f); p > precise[f] || p > 0 && p == precise[f] && q > quality[f] {
				precise[f], quality[f] = p, q
			}
		}
	}
	best := asProblem
	for f := range forms {
		if quality[f] > quality[best] || quality[f] == quality[best] && quality[f] > 0 && precise[f] > precise[best] {
			best = f
		}
	}
	return best
}

// precision returns how precisely a media range matches a form, and 0 if it does not.
func precision(media string, f form) int {
	switch kind, ok := strings.CutSuffix(media, "/*"); {
	case media == "*/*":
		return 1
	case ok && strings.HasPrefix(mediaTypes[f], kind+"/"):
		return 2
	case media == mediaTypes[f]:
		return 3
	}
	return 0
}

// qualityOf returns the q among the parameters of a media range: 1 without a q, and 0 for an
// invalid q.
func qualityOf(parameters string) float64 {
	for p := range strings.SplitSeq(parameters, ";") {
		name, value, _ := strings.Cut(p, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		if q, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && q >= 0 && q <= 1 {
			return q
		}
		return 0
	}
	return 1
}
