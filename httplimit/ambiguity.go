package httplimit

import (
	"fmt"
	"net/http"

	"github.com/weir-go/weir/internal/pathform"
)

// refuses reports whether a request is refused for its path, and fills in the outcome.
func (m *Middleware) refuses(s *scratch) bool {
	if !m.o.RefuseAmbiguousPaths || !s.outcome.refuse(s.request.Path) {
		return false
	}
	if m.book != nil {
		s.outcome.Snapshot = m.book.Current()
	}
	return true
}

// refuse reports whether a path is ambiguous, and is the outcome then. The request is not
// counted: whose it is may depend on the path, and an answer without a count costs less than
// one with it.
func (o *Outcome) refuse(path string) bool {
	why := pathform.Ambiguity(path)
	if why == "" {
		return false
	}
	o.Status = http.StatusBadRequest
	o.Err = fmt.Errorf("the path has %s, which servers interpret differently: send the path without it", why)
	return true
}
