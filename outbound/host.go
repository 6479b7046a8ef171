package outbound

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/weir-go/weir"
)

// hosts is a set of hosts, by Limit.Host.
type hosts struct {
	name  string // host name in lower case; empty for every name
	port  string // empty for every port
	below bool   // whether the set has the names below the field name, without that name itself
}

// parseHosts reads a Limit.Host.
func parseHosts(pattern string) (h hosts, err error) {
	if pattern == "*" {
		return h, nil
	}
	name, below := strings.CutPrefix(strings.ToLower(pattern), "*.")
	u, err := url.Parse("//" + name)
	if err != nil || u.Host != name || u.Hostname() == "" || strings.Contains(name, "*") || strings.HasSuffix(u.Hostname(), ".") {
		return h, fmt.Errorf("%w Limit: Host is %q: use a name or an address without a scheme and a path, *.name, or *", weir.ErrInvalid, pattern)
	}
	return hosts{u.Hostname(), u.Port(), below}, nil
}

// contains reports whether the host and the port of a URL are in h.
func (h hosts) contains(u *url.URL) bool {
	name, is := nameOf(u), h.name == ""
	if h.below {
		name, is = strings.CutSuffix(name, h.name)
		is = is && strings.HasSuffix(name, ".")
	}
	return (is || !h.below && name == h.name) && (h.port == "" || h.port == portOf(u))
}

// nameOf returns the host of a URL without a port, in lower case.
func nameOf(u *url.URL) string {
	return strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
}

// portOf returns the port of a URL, or the port of its scheme if the URL has no port.
func portOf(u *url.URL) string {
	if port := u.Port(); port != "" || u.Scheme != "http" {
		return cmp.Or(port, "443")
	}
	return "80"
}

// hostOf returns the host of a URL, with the port if it differs from the port of the scheme.
func hostOf(u *url.URL) string {
	name, port := nameOf(u), portOf(u)
	if port == portOf(&url.URL{Scheme: u.Scheme}) {
		return name
	}
	return net.JoinHostPort(name, port)
}

// credentialFields are the names of the header fields that have credentials, in canonical form.
var credentialFields = [...]string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"}

// credentialOf returns the credential of a request, or "".
func credentialOf(r *http.Request) string {
	for _, field := range credentialFields {
		if values := r.Header[field]; len(values) > 0 && values[0] != "" {
			return values[0]
		}
	}
	return ""
}

// keyOf returns the key of a host and a credential. The credential is hashed with SHA-256, and the hash is hashed
// again under Config.Seed and the name of the limit. So neither logs nor members have a text from which the
// credential could be computed.
func keyOf(l *weir.Limiter, host, credential string) string {
	if credential == "" {
		return host
	}
	sum := sha256.Sum256([]byte(credential))
	id := l.ID("credential " + string(sum[:]))
	return host + " " + hex.EncodeToString(id[:])
}
