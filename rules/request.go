package rules

import (
	"net/http"
	"net/netip"
)

// Request is what rules look at.
type Request struct {
	Method string
	Host   string      // as it came: case, a port and a trailing dot do not matter
	Path   string      // as the client sent it, with its escapes (url.URL.RawPath, or else EscapedPath); it need not be clean
	Header http.Header // with canonical names
	Fields Fields      // is asked instead of Header, if there
	Client netip.Addr  // the client, by trusted means; the zero Addr if unknown
	User   string      // empty if there is none, as with APIKey and Tier
	APIKey string
	Tier   string // one that the file does not have counts as the default tier
	Length int64  // of the content in bytes, -1 if unknown

	// IgnoreCase is true if the router that serves the request ignores the case of paths. It
	// is for adapters that know the router. A file has ignore_case for all its requests.
	IgnoreCase bool

	// Readings are those of the router that serves the request. Nil: the router is not known,
	// so that the request meets the rules of all readings of Path. Otherwise rules match the
	// Readings in place of Path. An Exception still leaves out only requests whose Path has
	// one reading.
	Readings []Reading

	Content Content // is asked where a rule reserves by JSON; nil: it is not known
}

// Content is that of a request.
type Content interface {
	// Head returns the content, or the first part of it where it is long. It needs to hold
	// until the next call.
	Head() []byte
}

// Fields is the header of a request that has no http.Header, so that none is made of it.
type Fields interface {
	// Values returns the lines of a field by its canonical name, nil if the request has
	// none. They need to hold until the next call, and their texts as long as the Request.
	// http.Header has this method.
	Values(name string) []string
}

// lines returns the lines of a field by its canonical name.
func (r *Request) lines(name string) []string {
	if r.Fields != nil {
		return r.Fields.Values(name)
	}
	return r.Header[name]
}
