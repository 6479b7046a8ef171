package rules

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/strictyaml"
	"github.com/weir-go/weir/weirtest"
)

// ruleServer is an HTTP server of rules.
type ruleServer struct {
	mu       sync.Mutex
	handle   http.HandlerFunc // if nil, the server serves the text
	text     string
	plain    bool // without ETag
	requests []http.Header
	texts    int // responses with the text
}

func (s *ruleServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Header)
	if s.handle != nil {
		s.handle(w, r)
		return
	}
	if etag := `"` + hashOf([]byte(s.text)) + `"`; !s.plain {
		w.Header().Set("ETag", etag)
		if r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	s.texts++
	fmt.Fprint(w, s.text)
}

func (s *ruleServer) set(text string, handle http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text, s.handle = text, handle
}

func (s *ruleServer) counts() (requests, texts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests), s.texts
}

// shortAnswerWait replaces answerWait in a test whose server is silent. The server must answer the first request in
// this time, also on a busy machine.
const shortAnswerWait = 500 * time.Millisecond

// startRuleServer returns a server and its source.
func startRuleServer(t *testing.T, text string) (*ruleServer, *httpSource) {
	s := &ruleServer{text: text}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	source, err := NewSource(server.URL+"/rules.yaml?signature=secret", SourceOptions{Poll: leastPoll})
	require.NoError(t, err)
	return s, source.(*httpSource)
}

func TestURLIsPolledByETag(t *testing.T) {
	s, source := startRuleServer(t, ratedFile(1, 10))
	b, log := openSource(t, source, BookOptions{})
	require.EqualValues(t, 10, rateOf(b))
	requests, _ := s.counts()
	s.set(ratedFile(2, 20), nil)
	eventually(t, "changed", func() bool { return rateOf(b) == 20 })
	eventually(t, "asked again", func() bool { now, _ := s.counts(); return now > requests+2 })
	_, texts := s.counts()
	require.Equal(t, 2, texts, "the other responses were 304")
	require.NotContains(t, log.String(), "secret")
	require.True(t, strings.HasSuffix(b.Stats().Source, "/rules.yaml"), b.Stats().Source)
}

func TestURLWithoutETagIsComparedByText(t *testing.T) {
	s, source := startRuleServer(t, ratedFile(1, 10))
	s.plain = true
	b, _ := openSource(t, source, BookOptions{})
	eventually(t, "asked again", func() bool { now, _ := s.counts(); return now > 2 })
	require.EqualValues(t, 1, b.Stats().Loads)
	s.set(ratedFile(2, 20), nil)
	eventually(t, "changed", func() bool { return rateOf(b) == 20 })
}

func TestFaultsOfURLLeaveRulesInForce(t *testing.T) {
	t.Parallel()
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	served := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
	}
	for about, c := range map[string]struct {
		fault   http.HandlerFunc
		want    string
		refused bool
	}{
		"down":       {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF", false},
		"slow":       {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no response in time", false},
		"an error":   {status(500), "status 500 instead of 200 with the rules", false},
		"missing":    {status(404), "status 404: there are no rules", false},
		"an old 304": {status(304), "status 304 instead of 200 with the rules", false},
		"not rules":  {served("<html></html>"), "the file is a text: use a map", true},
		"too long":   {served(strings.Repeat("#", strictyaml.MaxBytes+5)), "at most 1048576 are read", true},
		"invalid":    {served("version: 9\nrules: [{name: r}]"), "key is missing", true},
	} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			s, source := startRuleServer(t, ratedFile(1, 10))
			if about == "slow" {
				source.client.Timeout = shortAnswerWait
			}
			b, log := openSource(t, source, BookOptions{})
			before, logged := b.Stats(), log.count("the rules were refused")
			if about == "an old 304" {
				s.set("", status(500)) // the next request is without an ETag
				eventually(t, about, func() bool { return b.Stats().LastError != nil })
				logged++
			}
			s.set("", c.fault)
			eventually(t, about, func() bool { e := b.Stats().LastError; return e != nil && strings.Contains(e.Error(), c.want) })
			require.NotContains(t, b.Stats().LastError.Error(), "secret")
			require.Equal(t, about == "missing", b.Stats().Missing)
			require.Equal(t, about == "missing", errors.Is(b.Stats().LastError, fs.ErrNotExist))
			requests, _ := s.counts()
			eventually(t, "asked again", func() bool { now, _ := s.counts(); return now > requests })
			require.Equal(t, logged+1, log.count("the rules were refused"), log)
			require.Equal(t, c.refused, b.Stats().Refused > before.Refused)
			require.EqualValues(t, 1, b.Stats().Version)
			s.set(ratedFile(2, 10), nil)
			eventually(t, "back after "+about, func() bool { return b.Stats().Version == 2 && b.Stats().LastError == nil })
		})
	}
}

func TestRetryAfterOfURLIsObeyed(t *testing.T) {
	t.Parallel()
	s, source := startRuleServer(t, ratedFile(1, 10))
	b, _ := openSource(t, source, BookOptions{})
	var refused time.Time
	s.set(ratedFile(2, 20), func(w http.ResponseWriter, _ *http.Request) {
		refused, s.handle = time.Now(), nil
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	eventually(t, "loaded", func() bool { return rateOf(b) == 20 })
	s.mu.Lock()
	defer s.mu.Unlock()
	require.GreaterOrEqual(t, time.Since(refused), time.Second)
}

func TestRetryAfterIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &ruleServer{}
		var requests []time.Duration
		began := time.Now()
		s.set("", func(w http.ResponseWriter, _ *http.Request) {
			requests = append(requests, time.Since(began))
			w.Header().Set("Retry-After", "999999")
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		source, err := NewSource("https://rules.example.com/", SourceOptions{Transport: transport{s}})
		require.NoError(t, err)
		for range 2 {
			_, err = source.Next(t.Context(), "")
			require.ErrorContains(t, err, "status 503")
		}
		require.Equal(t, []time.Duration{0, maxRetryAfter}, requests)
	})
}

func TestRedirectMustNotLeaveHTTPS(t *testing.T) {
	request := func(text string) *http.Request {
		u, err := url.Parse(text)
		require.NoError(t, err)
		return &http.Request{URL: u}
	}
	for _, c := range []struct {
		from, to, want string
	}{
		{"http://a/", "http://b/", ""},
		{"http://a/", "https://a/", ""},
		{"https://a/", "https://b/", ""},
		{"https://a/", "http://a/", "a redirect from https to http"},
		{"https://a/", "file:///etc/passwd", "a redirect from https to file"},
	} {
		err := checkRedirect(request(c.to), []*http.Request{request(c.from)})
		require.Equal(t, c.want == "", err == nil, c)
		if err != nil {
			require.ErrorContains(t, err, c.want)
		}
	}
	many := make([]*http.Request, maxRedirects+1)
	for i := range many {
		many[i] = request("http://a/")
	}
	require.ErrorContains(t, checkRedirect(request("http://a/"), many), "more than 5 redirects")
}

func TestTokenIsSentToItsHostOnly(t *testing.T) {
	s := &ruleServer{text: ratedFile(1, 10)}
	target := httptest.NewServer(s)
	defer target.Close()
	var got string
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		http.Redirect(w, r, strings.Replace(target.URL, "127.0.0.1", "localhost", 1), http.StatusFound)
	}))
	defer first.Close()
	source, err := NewSource(first.URL, SourceOptions{Token: "a token of 16 bytes"})
	require.NoError(t, err)
	text, err := source.Next(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, ratedFile(1, 10), string(text.Bytes))
	require.Equal(t, "Bearer a token of 16 bytes", got)
	require.Empty(t, s.requests[0].Get("Authorization"))
}

func TestNewSourceRefusesInvalidOptions(t *testing.T) {
	for _, c := range []struct {
		location string
		o        SourceOptions
		want     string
	}{
		{"", SourceOptions{}, "the location is empty"},
		{"rules.yaml", SourceOptions{Poll: 99 * time.Millisecond}, "Poll is 99ms: use at least 100ms, or 0 for 5s"},
		{"rules.yaml", SourceOptions{Poll: -1}, "Poll is -1ns"},
		{"rules.yaml", SourceOptions{Token: "t"}, "Token or Transport for rules.yaml: only a URL has them"},
		{"ftp://a/b", SourceOptions{}, `"ftp://" is not read`},
		{"http://", SourceOptions{}, "the URL is not valid"},
		{"https://a:b:c/%zz", SourceOptions{}, "the URL is not valid"},
		{"https://u:secret@a/b", SourceOptions{}, "the URL of a has credentials"},
		{"http://a/b", SourceOptions{Token: "secret"}, "Token for http://a: use https"},
	} {
		_, err := NewSource(c.location, c.o)
		require.ErrorIs(t, err, weir.ErrInvalid)
		require.ErrorContains(t, err, "weir: invalid NewSource: "+c.want)
		require.NotContains(t, err.Error(), "secret")
	}
	for _, location := range []string{"http://localhost/", "http://127.0.0.1:80/", "http://[::1]/", "https://a/"} {
		_, err := NewSource(location, SourceOptions{Token: "t"})
		require.NoError(t, err)
	}
}

// transport answers requests without a network, so that time can be virtual.
type transport struct{ http.Handler }

func (h transport) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

func TestThreeNodesFollowURLWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := weirtest.NewCluster(t.Context(), weirtest.Options{Config: weir.Config{Logger: slog.New(slog.DiscardHandler)}})
		require.NoError(t, err)
		defer c.Close()
		s := &ruleServer{text: ratedFile(1, 10)}
		var books []*Book
		for _, name := range c.Names() {
			source, err := NewSource("https://rules.example.com/", SourceOptions{Poll: 500 * time.Millisecond, Transport: transport{s}})
			require.NoError(t, err)
			b, err := OpenSource(t.Context(), c.Node(name), source, BookOptions{Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			defer b.Close()
			books = append(books, b)
		}
		require.Len(t, books, 3)
		for version := 2; version < 20; version++ {
			s.set(ratedFile(version, 10*version), nil)
			time.Sleep(time.Second)
			for _, b := range books {
				require.EqualValues(t, 10*version, rateOf(b))
			}
		}
	})
}

// A request that gets no response does not close a connection of HTTP/2, so that all later requests would be
// sent on the dead connection.
func TestDeadConnectionToURLIsReplaced(t *testing.T) {
	t.Parallel()
	s := &ruleServer{text: ratedFile(1, 10)}
	server := httptest.NewUnstartedServer(s)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	proxy := lab.StartProxy(t, server.Listener.Addr().String())
	var dials atomic.Int32
	transport := server.Client().Transport.(*http.Transport).Clone()
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			address = proxy.Addr()
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	source, err := NewSource(server.URL, SourceOptions{Poll: leastPoll, Transport: transport})
	require.NoError(t, err)
	source.(*httpSource).client.Timeout = shortAnswerWait
	b, _ := openSource(t, source, BookOptions{})
	proxy.SetSilent(true)
	s.set(ratedFile(2, 20), nil)
	eventually(t, "no response", func() bool { return b.Stats().LastError != nil })
	eventually(t, "changed", func() bool { return rateOf(b) == 20 })
}

func TestClosedBookLeavesNoConnection(t *testing.T) {
	var open atomic.Int32
	server := httptest.NewUnstartedServer(&ruleServer{text: ratedFile(1, 10)})
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	server.Start()
	defer server.Close()
	source, err := NewSource(server.URL, SourceOptions{})
	require.NoError(t, err)
	b, _ := openSource(t, source, BookOptions{})
	require.EqualValues(t, 1, open.Load())
	require.NoError(t, b.Close())
	eventually(t, "closed", func() bool { return open.Load() == 0 })
}

func TestLongestPollCausesNoBusyLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &ruleServer{text: ratedFile(1, 10)}
		source, err := NewSource("https://rules.example.com/", SourceOptions{Poll: math.MaxInt64, Transport: transport{s}})
		require.NoError(t, err)
		b, _ := openSource(t, source, BookOptions{})
		defer b.Close()
		time.Sleep(time.Hour)
		requests, _ := s.counts()
		require.Equal(t, 1, requests)
	})
}
