package httplimit

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/weir-go/weir/internal/httpread"
	"github.com/weir-go/weir/rules"
)

// refuses reports whether a request is refused because of its path. If so, refuses sets the
// outcome.
func (m *Middleware) refuses(s *scratch) bool {
	if !m.o.RefuseAmbiguousPaths {
		return false
	}
	var current *rules.Snapshot
	if m.book != nil {
		current = m.book.Current()
	}
	return s.outcome.refuse(&s.request, current)
}

// refuse reports whether the path of a request is ambiguous under the rules of a Snapshot, which
// is nil without rules. If so, the outcome is set. The request is not counted, because the rules
// that it meets depend on the reading of the path, and a response without a count costs less than a
// response with a count.
//
// An escaped slash is ignored if all readings meet the same rules.
func (o *Outcome) refuse(r *rules.Request, s *rules.Snapshot) bool {
	why := ambiguity(r)
	if why == "" || why == httpread.EscapedSlash && (s == nil || !s.ReadingsDiffer(r)) {
		return false
	}
	o.Snapshot, o.Status = s, http.StatusBadRequest
	o.Err = fmt.Errorf("the path has %s, which servers interpret differently: send the path without it", why)
	return true
}

// ambiguity returns the ambiguous part of the path of a request, or of a second reading of the
// path, or "". An escaped slash is returned only if there is no other ambiguity.
func ambiguity(r *rules.Request) string {
	why := httpread.Ambiguity(r.Path)
	for _, of := range r.Readings {
		if (why == "" || why == httpread.EscapedSlash) && of.Form == rules.AnyForm && of.Path != r.Path {
			why = cmp.Or(httpread.Ambiguity(of.Path), why)
		}
	}
	return why
}
