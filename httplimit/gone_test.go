package httplimit

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// A request whose client disconnects before it is decided, or while it waits, has a status of its own.
func TestDisconnectedClientHasOwnStatus(t *testing.T) {
	const queue = "rules:\n- {name: r, key: ip, limit: {rate: 9, per: 1h}}\n- {name: q, key: ip, queue: 1m, limit: {algorithm: leaky_bucket, rate: 1, per: 30s, burst: 5}}\n"
	for _, c := range []struct {
		about, file string
		before      int  // requests that are answered first
		waits       bool // the client leaves while the request waits
	}{
		{"before it is decided on", "rules:\n- {name: r, key: ip, limit: {rate: 9, per: 1h}}\n", 0, false},
		{"before it waits", queue, 0, false},
		{"while it waits", queue, 1, true},
		{"under limits that fail open", "rules:\n- {name: r, key: ip, partition: fail_open, limit: {rate: 9, per: 1h}}\n", 0, false},
		{"under a shadow", "rules:\n- {name: r, key: ip, shadow: true, limit: {rate: 9, per: 1h}}\n", 0, false},
	} {
		t.Run(c.about, func(t *testing.T) {
			var told []Outcome
			var mu sync.Mutex
			m := newLimiter(t, c.file, Options{OnDecision: func(_ *http.Request, o *Outcome) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, *o)
			}, Denied: func(http.ResponseWriter, *http.Request, *Outcome) { t.Error("the client is not there") }}, weir.Config{})
			log := new(bytes.Buffer)
			m.o.Logger = slog.New(slog.NewTextHandler(log, nil))
			h := m.Handler(hello)
			for range c.before {
				require.Equal(t, 200, answer(h, get("/", "192.0.2.1")).Code)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan *httptest.ResponseRecorder)
			if !c.waits {
				cancel()
			}
			go func() { done <- answer(h, get("/", "192.0.2.1").WithContext(ctx)) }()
			if c.waits {
				require.Eventually(t, func() bool { return remaining(t, m, "q", "192.0.2.1") == 3 }, 5*time.Second, time.Millisecond)
				cancel()
			}
			w := <-done
			require.Equal(t, StatusClientGone, w.Code)
			require.Empty(t, w.Body.String())
			require.Empty(t, w.Header().Get("Retry-After"))
			last := told[len(told)-1]
			require.Equal(t, StatusClientGone, last.Status)
			require.ErrorIs(t, last.Err, context.Canceled)
			require.Empty(t, log.String(), "nothing is wrong here")
			require.EqualValues(t, 1, m.node.Stats().Canceled)
			require.EqualValues(t, 9-c.before, remaining(t, m, "r", "192.0.2.1"), "it spends nothing")
		})
	}
}

// A deadline that passes is set by the server. The client is still connected.
func TestDeadlineIsNotDisconnection(t *testing.T) {
	m := newLimiter(t, "rules:\n- {name: q, key: ip, queue: 1m, limit: {algorithm: leaky_bucket, rate: 1, per: 30s, burst: 5}}\n", Options{}, weir.Config{})
	h := m.Handler(hello)
	require.Equal(t, 200, answer(h, get("/", "192.0.2.1")).Code)
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	require.Equal(t, 503, answer(h, get("/", "192.0.2.1").WithContext(ctx)).Code)
	require.Zero(t, m.node.Stats().Canceled)
}

// If the node is closed, the policy of each rule decides.
func TestClosedNodeDecidesByPartitionPolicy(t *testing.T) {
	rule := func(name, more string) string {
		return fmt.Sprintf("- {name: %s, key: ip, %s, limit: {rate: 9, per: 1h}}\n", name, more)
	}
	const queued = "- {name: q, key: ip, queue: 1m, partition: %s, limit: {algorithm: leaky_bucket, rate: 1, per: 30s, burst: 5}}\n"
	open, closed := rule("open", "partition: fail_open"), rule("closed", "partition: fail_closed")
	for _, c := range []struct {
		about, rules string
		status       int
		violated     []string
	}{
		{"fail_open", open, 200, nil},
		{"fail_closed", closed, 503, []string{"closed"}},
		{"a share, of which nothing is known", rule("share", "partition: majority_share"), 503, []string{"share"}},
		{"both", open + closed, 503, []string{"closed"}},
		{"a shadow denies nothing", open + rule("shadow", "partition: fail_closed, shadow: true"), 200, nil},
		{"soft does not matter", rule("soft", "partition: fail_open, soft: {over: 10%, for: 1m}"), 200, nil},
		{"a queue that fails open", fmt.Sprintf(queued, "fail_open"), 200, nil},
		{"a queue that does not", fmt.Sprintf(queued, "fair_share"), 503, []string{"q"}},
		{"a queue and another", open + fmt.Sprintf(queued, "fail_open"), 200, nil},
	} {
		t.Run(c.about, func(t *testing.T) {
			var told Outcome
			m := newLimiter(t, "rules:\n"+c.rules, Options{OnDecision: func(_ *http.Request, o *Outcome) { told = *o; told.Verdicts = append([]Verdict{}, o.Verdicts...) }}, weir.Config{})
			log := new(bytes.Buffer)
			m.o.Logger = slog.New(slog.NewTextHandler(log, nil))
			require.NoError(t, m.node.Close())
			for range 3 {
				w := answer(m.Handler(hello), get("/", "192.0.2.1"))
				require.Equal(t, c.status, w.Code)
				require.Empty(t, w.Header().Get("X-RateLimit-Remaining"), "nothing is known of a count")
				require.Empty(t, w.Header().Get("RateLimit"))
			}
			require.Equal(t, c.violated, told.Violated(nil))
			require.Equal(t, 1, strings.Count(log.String(), "unlogged="), "once a second at most")
			if c.status == 200 {
				require.NoError(t, told.Err)
				require.Equal(t, weir.FailedOpen, told.Verdicts[0].Decision.Source)
				return
			}
			require.ErrorIs(t, told.Err, weir.ErrClosed)
		})
	}
}
