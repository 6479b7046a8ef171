package rules

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/ratelimit"
	"github.com/weir-go/weir/internal/strictyaml"
)

const (
	answerWait    = 10 * time.Second // maximum time of a request with its response
	maxRedirects  = 5
	maxRetryAfter = 5 * time.Minute
)

// httpSource is a text at a URL, which it requests periodically.
type httpSource struct {
	url    string
	name   string
	token  string
	every  time.Duration
	client *http.Client

	notBefore time.Time // earliest time of the next request by the last Retry-After
}

func newHTTPSource(u *url.URL, o SourceOptions) *httpSource {
	if standard, is := http.DefaultTransport.(*http.Transport); is && o.Transport == nil {
		o.Transport = standard.Clone() // with connections of its own, which Next closes
	}
	return &httpSource{
		url: u.String(), name: u.Scheme + "://" + u.Host + u.EscapedPath(), // queries may have credentials
		token: o.Token, every: o.Poll,
		client: &http.Client{Transport: o.Transport, Timeout: answerWait, CheckRedirect: checkRedirect},
	}
}

// checkRedirect refuses a redirect that leaves https, because another party could then change the rules. It also
// refuses the redirects after maxRedirects.
func checkRedirect(r *http.Request, via []*http.Request) error {
	switch from := via[len(via)-1].URL; {
	case len(via) > maxRedirects:
		return fmt.Errorf("there are more than %d redirects: use the URL that has the rules", maxRedirects)
	case r.URL.Scheme != from.Scheme && r.URL.Scheme != "https":
		return fmt.Errorf("a redirect from %s to %s: use the URL that has the rules", from.Scheme, r.URL.Scheme)
	}
	return nil
}

func (s *httpSource) Name() string { return s.name }

// Close closes the connection, which the server would otherwise keep.
func (s *httpSource) Close() error {
	s.client.CloseIdleConnections()
	return nil
}

// Next requests the text at once if known is empty, and periodically otherwise, but never before a Retry-After
// has passed. Nodes that were started together request the text at different times.
func (s *httpSource) Next(ctx context.Context, known string) (Text, error) {
	if known == "" {
		s.client.CloseIdleConnections() // after an error, because a request that gets no response does not close a dead HTTP/2 connection
	}
	var wait time.Duration
	for {
		if known != "" {
			wait = s.every - rand.N(s.every/5) // at most Poll, which may be the longest duration
		}
		select {
		case <-ctx.Done():
			return Text{}, ctx.Err()
		case <-time.After(max(wait, time.Until(s.notBefore))):
		}
		text, err := s.request(ctx, known)
		if err != nil {
			return Text{}, fmt.Errorf("rules: %s: %w", s.name, err)
		}
		if text.Version != known {
			return text, nil
		}
	}
}

// request returns the present text. If the text has the known version, request may return only the version. The
// version is the ETag or, without one, the hash of the text.
func (s *httpSource) request(ctx context.Context, known string) (Text, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return Text{}, err
	}
	if isETag(known) {
		r.Header.Set("If-None-Match", known)
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	response, err := s.client.Do(r)
	if err != nil {
		return Text{}, causeOf(err)
	}
	defer response.Body.Close()
	switch status := response.StatusCode; {
	case status == http.StatusNotModified && isETag(known):
		return Text{Version: known}, nil
	case status == http.StatusNotFound, status == http.StatusGone:
		return Text{}, fmt.Errorf("status %d: there are no rules (%w)", status, fs.ErrNotExist)
	case status != http.StatusOK:
		now := time.Now()
		s.notBefore = now.Add(min(ratelimit.RetryAfter(response.Header, now), maxRetryAfter))
		return Text{}, fmt.Errorf("status %d instead of 200 with the rules", status)
	}
	bytes, err := io.ReadAll(io.LimitReader(response.Body, strictyaml.MaxBytes+1)) // Parse refuses a longer text
	if err != nil {
		return Text{}, causeOf(err)
	}
	version := response.Header.Get("ETag")
	if !isETag(version) {
		version = hashOf(bytes)
	}
	return Text{s.name, bytes, version}, nil
}

func isETag(text string) bool { return strings.HasPrefix(text, `"`) || strings.HasPrefix(text, `W/"`) }

// causeOf returns an error without the addresses of a connection, which differ at each attempt, and without
// the query of the URL.
func causeOf(err error) error {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return errors.New("no response in time")
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}
