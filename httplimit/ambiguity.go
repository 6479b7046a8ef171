package httplimit

import (
	"fmt"
	"net/http"
)

// refuse answers a request whose path is ambiguous. It is not counted: whose it is may
// depend on the path, and an answer without a count costs less than one with it.
func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, why string) {
	o := Outcome{
		Snapshot: m.book.Current(), Status: http.StatusBadRequest,
		Err: fmt.Errorf("the path has %s, which servers read in several ways: write it plainly", why),
	}
	if m.o.OnDecision != nil {
		m.o.OnDecision(r, &o)
	}
	deny(w, r, &o)
}
