package httplimit

import (
	"encoding/json"
	"net/http"
)

// problemType is the media type of a Problem.
const problemType = "application/problem+json"

// Problem is an error as clients get it (RFC 9457).
type Problem struct {
	Type     string   `json:"type"` // about:blank: the status says it all
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Violated []string `json:"violated-policies,omitempty"` // the names of the limits that denied
}

func (p *Problem) text() []byte {
	text, _ := json.Marshal(p) // texts and numbers always have a form
	return append(text, '\n')
}

// writeProblem answers with a problem. The caller has set the header's other
// fields.
func writeProblem(w http.ResponseWriter, r *http.Request, p *Problem) {
	h := w.Header()
	h.Set("Content-Type", problemType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	if r.Method != http.MethodHead {
		w.Write(p.text())
	}
}
