package httplimit

import (
	"cmp"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// caller returns the Caller of the request. Its Tier is that of the last Verdict with a tier: only the takes of a
// take_all can have different tiers, and a Middleware of ByLimiter has no tiers of its own. Its Route has the pattern of the handler or, if that is unknown, of the
// first rule that has a pattern.
func (s *scratch) caller() *weir.Caller {
	c, verdicts := CallerOf(&s.request), s.outcome.Verdicts
	pattern := ""
	if s.http != nil {
		pattern = s.http.Pattern
	}
	for i := range verdicts {
		c.Tier, pattern = cmp.Or(verdicts[i].Tier, c.Tier), cmp.Or(pattern, verdicts[i].Rule.When.Path)
	}
	if !strings.Contains(pattern, " ") { // the pattern lacks the method
		pattern = strings.TrimSpace(s.request.Method + " " + pattern)
	}
	c.Route = pattern
	return &c
}

// CallerOf returns the Caller of a request without a Route, for adapters that ask limits themselves.
func CallerOf(r *rules.Request) weir.Caller {
	c := weir.Caller{Client: r.Client, Tier: r.Tier}
	lines := r.Header["User-Agent"]
	if r.Fields != nil {
		lines = r.Fields.Values("User-Agent")
	}
	if len(lines) > 0 {
		c.UserAgent = lines[0]
	}
	return c
}
