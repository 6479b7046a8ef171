package httplimit

import (
	"encoding/json"
	"net/http"
)

// problem is an error as clients get it (RFC 9457).
type problem struct {
	Type     string   `json:"type"` // about:blank: the status says it all
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Violated []string `json:"violated-policies,omitempty"`
}

// writeProblem answers with a problem. The caller has set the header's other
// fields.
func writeProblem(w http.ResponseWriter, r *http.Request, p *problem) {
	body, _ := json.Marshal(p) // texts and numbers always have a form
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	if r.Method != http.MethodHead {
		w.Write(append(body, '\n'))
	}
}
