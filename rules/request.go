package rules

import (
	"net/http"
	"net/netip"
)

// Request is what rules look at.
type Request struct {
	Method string
	Host   string      // as it came: case, a port and a trailing dot do not matter
	Path   string      // as it came, with its escapes (url.URL.EscapedPath); it need not be clean
	Header http.Header // with canonical names
	Client netip.Addr  // the client, by trusted means; the zero Addr if unknown
	User   string      // empty if there is none, as with APIKey and Tier
	APIKey string
	Tier   string // one that the file does not have counts as the default tier
	Length int64  // of the content in bytes, -1 if unknown
}
