package admin

import (
	"net/http"

	"github.com/weir-go/weir"
)

// remedies has the remedies for limits whose kind a path refuses. Each text names the path that accepts the
// kind, because callers cannot use the Go functions that errors of package weir name. An empty text means
// that the path accepts the kind.
type remedies struct{ inFlight, counted string }

var remediesByPath = map[string]remedies{
	"/v1/take":     {inFlight: "hold its units by POST /v1/hold"},
	"/v1/take_all": {inFlight: "hold its units by POST /v1/hold"},
	"/v1/reserve":  {inFlight: "hold its units by POST /v1/hold"},
	"/v1/settle":   {inFlight: "return its units by POST /v1/release"},
	"/v1/debit":    {inFlight: "hold its units by POST /v1/hold"},
	"/v1/refund":   {inFlight: "return its units by POST /v1/release"},
	"/v1/counts":   {inFlight: "it has no count, and its units come back by POST /v1/release, or when its holds expire"},
	"/v1/hold":     {counted: "take its units by POST /v1/take or POST /v1/reserve"},
	"/v1/renew":    {counted: "its reservations end by POST /v1/settle"},
	"/v1/release":  {counted: "return its units by POST /v1/refund or POST /v1/settle"},
}

// checkKind returns a refusal if the path does not accept limits of the kind of l.
func (r *request) checkKind(l weir.Limit) error {
	of := remediesByPath[r.URL.Path]
	switch isInFlight := l.Algorithm == weir.InFlight; {
	case isInFlight && of.inFlight != "":
		return refuseInFlight(l.Name, of.inFlight)
	case !isInFlight && of.counted != "":
		return refuse(http.StatusBadRequest, "limit %q is a %v, and only an in_flight limit has holds: %s", l.Name, l.Algorithm, of.counted)
	}
	return nil
}

// refuseInFlight returns the refusal of an in_flight limit, with its remedy.
func refuseInFlight(limit, remedy string) error {
	return refuse(http.StatusBadRequest, "limit %q is in_flight: %s", limit, remedy)
}

// refuseNoEnd returns the refusal of a request that must hold units of an in_flight limit, but whose
// end the API does not learn. The text names the remedy for the path.
func refuseNoEnd(limit, path string) error {
	if of := remediesByPath[path]; of.inFlight != "" {
		return refuseInFlight(limit, of.inFlight)
	}
	return refuseInFlight(limit, "send the request to POST /v1/request with a ttl, and release its holds, or keep it out of the rule")
}
