package rules

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/weir-go/weir"
)

// SourceOptions configure a Source. The zero SourceOptions are valid.
type SourceOptions struct {
	Logger    *slog.Logger      // slog.Default if nil
	Poll      time.Duration     // interval at which the text is read even if no event reports a change, at least 100 ms; 5 s if zero
	Token     string            // sent to a URL as a bearer token; none if empty. A URL without TLS may have one only on this machine
	Transport http.RoundTripper // for a URL, with its certificates; http.DefaultTransport if nil
}

const leastPoll = 100 * time.Millisecond

// NewSource returns the source at a location, for OpenSource: a file, a directory, or a URL.
//
// A directory has fragments, which are its files *.yaml without hidden files. In the order of their names
// they are one rules file. Only rules, deny and $schema may be in several fragments, so version is in a
// single fragment. All files of a ConfigMap change at once.
//
// A URL is of http or https. Its ETag, if there is one, is the version of the text. A response is awaited for
// 10 s, a redirect must not leave https, and a Retry-After of up to 5 minutes is obeyed. Poll bounds the age of the
// rules. Name is the URL without its query.
func NewSource(location string, o SourceOptions) (Source, error) {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w NewSource: "+format, append([]any{weir.ErrInvalid}, args...)...)
	}
	if o.Poll != 0 && o.Poll < leastPoll {
		return nil, invalid("Poll is %v: use at least %v, or 0 for %v", o.Poll, leastPoll, poll)
	}
	o.Poll = cmp.Or(o.Poll, poll)
	scheme, _, isURL := strings.Cut(location, "://")
	switch {
	case location == "":
		return nil, invalid("the location is empty: name a file, a directory or a URL")
	case !isURL && o.Token != "":
		return nil, invalid("Token for %s: only a URL has one", location)
	case !isURL:
		if info, err := os.Stat(location); strings.HasSuffix(location, "/") || err == nil && info.IsDir() {
			return newDirSource(location, o.Poll, o.Logger), nil
		}
		return newFileSource(location, o.Poll, o.Logger), nil
	case scheme != "http" && scheme != "https":
		return nil, invalid("%q is not read: use http or https, a file or a directory", scheme+"://")
	}
	u, err := url.Parse(location)
	switch {
	case err != nil || u.Host == "":
		return nil, invalid("the URL is not valid: write it like https://rules.example.com/weir.yaml")
	case u.User != nil:
		return nil, invalid("the URL of %s has credentials: remove them, and set Token", u.Host)
	case o.Token != "" && scheme == "http" && !isLocal(u.Hostname()):
		return nil, invalid("Token for http://%s: use https, so that only the server reads the token", u.Host)
	}
	return newHTTPSource(u, o), nil
}

// isLocal reports whether a host is this machine.
func isLocal(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}
