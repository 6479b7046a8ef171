package httplimit

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/rules"
)

// A request that waits for its turn is decided by the version of the rules with which it began.
func TestWaitingRequestKeepsItsVersion(t *testing.T) {
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
	node := testnode.Start(t, weir.Config{})
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
	require.EqualValues(t, 1998, remaining(t, m, "counted", "192.0.2.1"))
}
