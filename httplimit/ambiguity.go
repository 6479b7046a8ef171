package httplimit

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/weir-go/weir/internal/httpread"
	"github.com/weir-go/weir/rules"
)

// refuses reports whether a request is refused for its path, and fills in the outcome.
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
// is nil without rules. It fills in the outcome if so. The request is not counted: whose it is
// may depend on the path, and an answer without a count costs less than one with it.
//
// An escaped slash does not matter where all readings meet the same rules.
func (o *Outcome) refuse(r *rules.Request, s *rules.Snapshot) bool {
	why := ambiguity(r)
	if why == "" || why == httpread.EscapedSlash && (s == nil || !s.ReadingsDiffer(r)) {
		return false
	}
	o.Snapshot, o.Status = s, http.StatusBadRequest
	o.Err = fmt.Errorf("the path has %s, which servers interpret differently: send the path without it", why)
	return true
}

// ambiguity returns what is ambiguous in the path of a request, or in one that may take its
// place, and "" where nothing is. An escaped slash comes last.
func ambiguity(r *rules.Request) string {
	why := httpread.Ambiguity(r.Path)
	for _, of := range r.Readings {
		if (why == "" || why == httpread.EscapedSlash) && of.Form == rules.AnyForm && of.Path != r.Path {
			why = cmp.Or(httpread.Ambiguity(of.Path), why)
		}
	}
	return why
}
