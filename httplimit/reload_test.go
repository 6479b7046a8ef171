package httplimit

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/full"
	"github.com/weir-go/weir/rules"
)

// versioned is a file of which every number tells its version, as does how many
// rules there are.
func versioned(version int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "version: %d\nrules:\n", version)
	fmt.Fprintf(&b, "- {name: counted, key: global, limit: {algorithm: fixed_window, rate: %d, per: 1h}}\n", firstRate+version)
	for i := range 1 + version%3 {
		fmt.Fprintf(&b, "- {name: more %d, key: ip, limit: {algorithm: token_bucket, rate: %d, per: 1s}}\n", i, firstRate+version)
	}
	return b.String()
}

const firstRate = 1_000_000_000

// swapped are the ways in which a file is changed: how to put the first and then
// another version in a directory, how to take it away, and what it is called.
var swapped = map[string]func(t *testing.T, dir string) (path string, put func(text string), remove func()){
	"a file is renamed over": func(t *testing.T, dir string) (string, func(string), func()) {
		path := filepath.Join(dir, "rules.yaml")
		put := func(text string) {
			require.NoError(t, os.WriteFile(path+".new", []byte(text), 0o600))
			require.NoError(t, os.Rename(path+".new", path))
		}
		return path, put, func() { require.NoError(t, os.Remove(path)) }
	},
	// As the kubelet does: each version has a directory, a symlink leads to it, and
	// the one before is removed.
	"a ConfigMap's symlink is swapped": func(t *testing.T, dir string) (string, func(string), func()) {
		path, data, versions := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "..data"), 0
		require.NoError(t, os.Symlink(filepath.Join("..data", "rules.yaml"), path))
		put := func(text string) {
			old, _ := os.Readlink(data)
			versions++
			name := fmt.Sprintf("..2026_11_21_%d", versions)
			require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, name, "rules.yaml"), []byte(text), 0o600))
			require.NoError(t, os.Symlink(name, data+"_tmp"))
			require.NoError(t, os.Rename(data+"_tmp", data))
			if old != "" {
				require.NoError(t, os.RemoveAll(filepath.Join(dir, old)))
			}
		}
		return path, put, func() { require.NoError(t, os.Remove(data)) }
	},
}

// Two gateways over sockets, one file, and clients that ask all the time, while an
// operator changes overrides: no request fails, none is judged by halves of two
// versions, and not a unit is forgotten, whichever version either gateway is at.
func TestReloadsUnderLoad(t *testing.T) {
	for how, prepare := range swapped {
		t.Run(how, func(t *testing.T) { reloadUnderLoad(t, prepare) })
	}
}

func reloadUnderLoad(t *testing.T, prepare func(*testing.T, string) (string, func(string), func())) {
	path, put, remove := prepare(t, t.TempDir())
	put(versioned(1))
	var (
		all     []*Middleware
		servers []*httptest.Server
		join    []string
	)
	for range 2 {
		node, err := weir.Start(t.Context(), weir.Config{Bind: "127.0.0.1:0", Join: join, Timeout: time.Minute, Logger: quietly})
		require.NoError(t, err)
		defer node.Close()
		join = []string{node.Members()[0].Addr}
		book, err := rules.Open(t.Context(), node, path, rules.BookOptions{Logger: quietly})
		require.NoError(t, err)
		defer book.Close()
		m, err := New(node, book, Options{Logger: quietly})
		require.NoError(t, err)
		server := httptest.NewServer(m.Handler(hello))
		defer server.Close()
		all, servers = append(all, m), append(servers, server)
	}
	m, book := all[0], all[0].book
	for _, one := range all {
		require.Eventually(t, func() bool { return one.node.Ready() && len(one.node.Members()) == 2 }, 10*time.Second, 5*time.Millisecond)
	}
	are := func(is func(rules.BookStats) bool) {
		t.Helper()
		for _, one := range all {
			require.Eventually(t, func() bool { return is(one.book.Stats()) }, 10*time.Second, time.Millisecond)
		}
	}

	var (
		clients  sync.WaitGroup
		stop     atomic.Bool
		admitted atomic.Int64
		seen     sync.Map
	)
	for i := range 4 {
		server := servers[i%len(servers)]
		clients.Go(func() {
			for !stop.Load() {
				answer, err := server.Client().Get(server.URL)
				if err != nil {
					t.Errorf("a request failed: %v", err)
					return
				}
				io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
				if answer.StatusCode != http.StatusOK {
					t.Errorf("a request was answered with %d", answer.StatusCode)
					return
				}
				admitted.Add(1)
				version, err := versionOf(answer.Header)
				if err != nil {
					t.Error(err)
					return
				}
				seen.Store(version, true)
			}
		})
	}
	last := 1
	lasts := time.Duration(full.Pick(t, 400, 1000)) * time.Millisecond
	for end := time.Now().Add(lasts); (time.Now().Before(end) || last < 12) && !t.Failed(); {
		last++
		switch last % 5 {
		case 2:
			require.NoError(t, book.Override("counted", "nobody", rules.Override{Rate: int64(last)}))
		case 3:
			refused := book.Stats().Refused
			put("rules: [{name: nothing}]")
			are(func(s rules.BookStats) bool { return s.Refused > refused || s.LastError != nil && !s.Missing })
		case 4:
			remove()
			are(func(s rules.BookStats) bool { return s.Missing })
		}
		put(versioned(last))
		are(func(s rules.BookStats) bool { return s.Version == uint64(last) })
	}
	stop.Store(true)
	clients.Wait()

	versions := 0
	seen.Range(func(any, any) bool { versions++; return true })
	require.Greater(t, versions, 5)
	for _, one := range all {
		require.Equal(t, int64(firstRate+last)-admitted.Load(), left(t, one, "counted", ""), "no count resets")
	}
	t.Logf("%d requests, %d versions, of which requests met %d; %v", admitted.Load(), last, versions, m.node.Stats().Decisions)
}

// versionOf is the one version that all fields of an answer are of.
func versionOf(h http.Header) (int64, error) {
	policies, states := strings.Split(h.Get("RateLimit-Policy"), ", "), strings.Split(h.Get("RateLimit"), ", ")
	version := int64(-1)
	for _, p := range policies {
		_, after, _ := strings.Cut(p, ";q=")
		text, _, _ := strings.Cut(after, ";")
		q, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, err
		}
		if v := q - firstRate; version < 0 {
			version = v
		} else if v != version {
			return 0, fmt.Errorf("a request saw versions %d and %d: %v", version, v, h)
		}
	}
	if want := int(2 + version%3); len(policies) != want || len(states) != want {
		return 0, fmt.Errorf("a request of version %d saw %d policies and %d states: %v", version, len(policies), len(states), h)
	}
	return version, nil
}

// A request that waits for its turn ends by the version by which it began.
func TestARequestThatWaitsKeepsItsVersion(t *testing.T) {
	file := func(version, rate int) string {
		return fmt.Sprintf(`
version: %d
rules:
- {name: q, key: ip, queue: 30s, limit: {algorithm: in_flight, rate: %d}}
- {name: counted, key: ip, limit: {algorithm: fixed_window, rate: %d, per: 1h}}
`, version, rate, 1000*version)
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(path, []byte(file(1, 1)), 0o600))
	node, err := weir.Start(t.Context(), weir.Config{Logger: quietly})
	require.NoError(t, err)
	defer node.Close()
	book, err := rules.Open(t.Context(), node, path, rules.BookOptions{Logger: quietly})
	require.NoError(t, err)
	defer book.Close()
	var met atomic.Uint64
	m, err := New(node, book, Options{Logger: quietly, OnDecision: func(_ *http.Request, o *Outcome) { met.Store(o.Snapshot.Version()) }})
	require.NoError(t, err)
	next := newInside()
	h := m.Handler(next)
	next.stay(h, 1)

	waited := make(chan http.Header, 1)
	go func() { waited <- answer(h, get("/", "192.0.2.1")).Header() }()
	require.Eventually(t, func() bool { _, waits := m.waiting.Load("q"); return waits }, 10*time.Second, time.Millisecond)
	require.NoError(t, os.WriteFile(path+".new", []byte(file(2, 2)), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
	require.Eventually(t, func() bool { return book.Stats().Version == 2 }, 10*time.Second, time.Millisecond)
	require.Empty(t, waited)
	close(next.leave)

	require.Equal(t, `"q";q=1;qu="concurrent-requests", "counted";q=1000;w=3600`, (<-waited).Get("RateLimit-Policy"))
	require.EqualValues(t, 1, met.Load())
	require.Equal(t, `"q";q=2;qu="concurrent-requests", "counted";q=2000;w=3600`, answer(h, get("/", "192.0.2.2")).Header().Get("RateLimit-Policy"))
	require.EqualValues(t, 1998, left(t, m, "counted", "192.0.2.1"))
}
