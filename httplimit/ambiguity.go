package httplimit

import (
	"fmt"
	"net/http"

	"github.com/weir-go/weir/internal/pathform"
)

// refuses reports whether a request is refused for its path, and fills in the outcome. It is
// not counted: whose it is may depend on the path, and an answer without a count costs less
// than one with it.
func (m *Middleware) refuses(s *scratch) bool {
	if !m.o.RefuseAmbiguousPaths {
		return false
	}
	why := pathform.Ambiguity(s.request.Path)
	if why == "" {
		return false
	}
	if m.book != nil {
		s.outcome.Snapshot = m.book.Current()
	}
	s.outcome.Status = http.StatusBadRequest
	s.outcome.Err = fmt.Errorf("the path has %s, which servers read in several ways: write it plainly", why)
	return true
}
