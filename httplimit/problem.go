package httplimit

import "encoding/json"

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
