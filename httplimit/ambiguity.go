package httplimit

import (
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
	why := r.PathAmbiguity()
	if why == "" || why == httpread.EscapedSlash && (s == nil || !s.ReadingsDiffer(r)) {
		return false
	}
	o.Snapshot, o.Status = s, http.StatusBadRequest
	o.Err = fmt.Errorf("the path has %s, which servers interpret differently: send the path without it", why)
	return true
}

// ambiguousKey is the Err of a request with an ambiguous part of a key, such as query:X.
type ambiguousKey string

func (k ambiguousKey) Error() string {
	return fmt.Sprintf("the request has %s in a form that servers interpret differently: send it once, and without special characters", string(k))
}

// refuseKey refuses a request with an ambiguous part of a key. The count would depend on the reading of
// the part, so that a client would have several counts.
func (o *Outcome) refuseKey(part string) {
	clear(o.Verdicts)
	o.Verdicts, o.Status, o.Err = o.Verdicts[:0], http.StatusBadRequest, ambiguousKey(part)
}
