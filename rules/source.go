package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/weir-go/weir"
)

// Source delivers the text of rules to a Book. A Source is for a single Book, which calls Next from one
// goroutine at a time. If the Source has a method Close() error, the Book calls it after the last call of Next,
// also if OpenSource returns an error.
type Source interface {
	// Name returns a name for logs and Stats, such as a path or a URL. It must not contain credentials.
	Name() string

	// Next returns the present text if its version differs from the argument known. Otherwise Next waits for a
	// text with a different version, until ctx is done. The Book passes "" in the first call and after an error.
	//
	// An error states that the text cannot be read now. The Book keeps its rules, and logs the error unless its
	// text equals that of the last error. The Book calls Next again after a random delay, whose maximum doubles
	// from 100 ms to 5 s. Each attempt to read must have a timeout. An error that wraps fs.ErrNotExist states
	// that there is no text.
	Next(ctx context.Context, known string) (Text, error)
}

// Text is a version of the text of rules.
type Text struct {
	Name    string // name of the text in errors, like that of a file
	Bytes   []byte // as Parse reads them: YAML or JSON of at most 1 MiB. The Book does not change them
	Version string // version of the text in its source, such as a revision or a hash; not empty. This is not the field version of the rules
}

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
// rules. Name is the URL without its query. The error is weir.ErrInvalid for an invalid location or option.
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
	case !isURL && (o.Token != "" || o.Transport != nil):
		return nil, invalid("Token or Transport for %s: only a URL has them", location)
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

const (
	firstWait    = 30 * time.Second       // maximum time of the first reading
	cacheWait    = 5 * time.Second        // maximum time of the first reading if there is a cache
	leastDelay   = 100 * time.Millisecond // maximum of the random delay after an error; the maximum doubles with each further error
	longestDelay = 5 * time.Second        // maximum delay after any number of errors
)

// OpenSource reads the text of a source, and then each further text, until Close. It returns the error of
// the first reading, which ends after 30 s, unless the Cache has a text. If the source later fails, or has
// an invalid text, the last valid version stays in force, and the error is logged and reported in Stats.
// The error can also be that of ctx, or weir.ErrInvalid for a nil node or source, or a Poll in the options.
func OpenSource(ctx context.Context, node *weir.Node, source Source, o BookOptions) (*Book, error) {
	if source == nil {
		return nil, fmt.Errorf("%w OpenSource: the Source is nil: use NewSource, or Static for a Set", weir.ErrInvalid)
	}
	b := newBook(node, node, o.Logger)
	b.source, b.stats.Source, b.cache = source, source.Name(), o.Cache
	known, err := "", cmp.Or(checkNode("OpenSource", node), ctx.Err())
	if err == nil && o.Poll != 0 {
		err = fmt.Errorf("%w BookOptions.Poll: %v: only Open uses this field; set SourceOptions.Poll instead", weir.ErrInvalid, o.Poll)
	}
	if err == nil {
		known, err = b.readFirst(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, b.closeSource())
	}
	b.republish()
	b.start(func(ctx context.Context) { b.followSource(ctx, known) })
	return b, nil
}

// readFirst puts the text of the cache in force, and then the present text of the source, as a later text. The
// result known is the version of the text that the source returned. The error is nil if either text is in force,
// except if ctx is done and the text of the source is not in force.
func (b *Book) readFirst(ctx context.Context) (known string, err error) {
	wait, uncached := firstWait, error(nil)
	if b.cache != "" {
		uncached = b.startFromCache()
	}
	isCached := b.current.Load() != nil
	if isCached {
		wait = cacheWait
	}
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	text, err := b.readNext(limited, "")
	switch {
	case err == nil:
		known, err = text.Version, b.load(text)
	case isCached:
		b.noteUnread(err)
	}
	switch {
	case err == nil, ctx.Err() != nil:
		return known, err
	case isCached:
		return known, nil
	}
	return "", errors.Join(err, uncached)
}

// closeSource closes the source, if it has a method Close.
func (b *Book) closeSource() error {
	if c, is := b.source.(io.Closer); is {
		return c.Close()
	}
	return nil
}

// readNext returns the next text of the source.
func (b *Book) readNext(ctx context.Context, known string) (Text, error) {
	text, err := b.source.Next(ctx, known)
	if err == nil && text.Version == "" {
		return text, errUnversioned
	}
	return text, err
}

var errUnversioned = errors.New("rules: the source returned a text without a version: return a revision or a hash with each text")

// followSource loads each text of the source, until ctx is done.
func (b *Book) followSource(ctx context.Context, known string) {
	delay := leastDelay
	for {
		wait := quiet // bounds the work for a source that does not wait
		text, err := b.readNext(ctx, known)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			b.noteUnread(err)
			known, wait = "", delay/2+rand.N(delay/2) // so that nodes do not all come back at once
			delay = min(2*delay, longestDelay)
		default:
			if known != "" { // the source could wait
				delay = leastDelay
			}
			known = text.Version
			_ = b.load(text) // the error is in Stats
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// isLocal reports whether a host is this machine.
func isLocal(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}
