package rules

import (
	"net/http"
	"net/netip"
)

// Request has the properties of a request that rules use.
type Request struct {
	Method string
	Host   string      // as the client sent it: rules ignore the case, a port and a trailing dot
	Path   string      // as the client sent it, with its escapes (url.URL.RawPath, or else EscapedPath); it need not be clean
	Query  string      // as the client sent it, without the ?; empty if there is none
	Header http.Header // with canonical names
	Fields Fields      // used instead of Header, if not nil
	Client netip.Addr  // trustworthy address of the client; the zero Addr if unknown
	User   string      // empty if there is none, like APIKey and Tier
	APIKey string
	Tier   string // a tier that is not in the file stands for the default tier
	// Critical is true if the request may spend the kept units of all limits. The caller must set the field
	// from data that the client cannot forge.
	Critical bool
	Claims   Claims // nil if there are none
	Length   int64  // length of the content in bytes, -1 if unknown

	// IgnoreCase is true if the router that serves the request ignores the case of paths. It is
	// for adapters that know the router. The field ignore_case of a file has the same effect for
	// all requests.
	IgnoreCase bool

	// Readings are the ways in which the router that serves the request reads its path. Nil means that
	// the router is unknown, so that the request meets the rules of all readings of Path. Otherwise
	// rules match the Readings instead of Path. In both cases, an Exception with Paths excludes only
	// requests whose Path has a single reading.
	Readings []Reading

	Content Content // used by rules that reserve units by JSON content; nil if unknown
}

// Content is the content of a request.
type Content interface {
	// Head returns the content, or its beginning if it is long. The result must be valid until
	// the next call.
	Head() []byte
}

// Fields is the header of a request without an http.Header, so that no http.Header need be made.
type Fields interface {
	// Values returns the lines of a field with a canonical name, or nil. The slice must be valid
	// until the next call, and its strings as long as the Request. http.Header has this method.
	Values(name string) []string
}

// lines returns the lines of a field with a canonical name.
func (r *Request) lines(name string) []string {
	if r.Fields != nil {
		return r.Fields.Values(name)
	}
	return r.Header[name]
}
