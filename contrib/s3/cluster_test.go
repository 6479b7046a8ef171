package s3snapshot_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	s3snapshot "github.com/weir-go/weir/contrib/s3"
	"github.com/weir-go/weir/internal/full"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/pace"
)

// A check that waits for the bucket takes about as long as a request that fails, which is
// requestTimeout where the server is slow. lateBy bounds the p99, and waits each check.
const (
	requestTimeout = time.Second
	waits          = requestTimeout / 2
	lateBy         = 50 * time.Millisecond
)

// replica is a node that keeps its snapshots in the bucket.
type replica struct {
	*weir.Node
	limit *weir.Limiter
	log   failureLog
}

// failureLog counts the lines about snapshots that were not written, and what they stand for.
type failureLog struct {
	mu       sync.Mutex
	lines    int
	failures uint64
	seen     []string
}

func (*failureLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *failureLog) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l *failureLog) WithGroup(string) slog.Handler          { return l }
func (l *failureLog) Handle(_ context.Context, r slog.Record) error {
	if !strings.HasPrefix(r.Message, "a snapshot was not written") {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines++
	l.failures++
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "unlogged":
			l.failures += a.Value.Uint64()
		case "error":
			l.seen = append(l.seen, fmt.Sprint(a.Value.Any()))
		}
		return true
	})
	return nil
}

func (l *failureLog) counted() (lines int, failures uint64, seen []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines, l.failures, slices.Clone(l.seen)
}

// replicas starts nodes of one cluster, with many counts.
func replicas(t *testing.T, s *server, counts int) []*replica {
	t.Helper()
	var all []*replica
	for _, name := range []string{"a", "b", "c"} {
		r := new(replica)
		cfg := weir.Config{
			Name: name, Bind: "127.0.0.1:0", Secrets: [][]byte{[]byte("the secret of the nodes of tests")}, TopKeys: -1, Timeout: 5 * time.Second, Logger: slog.New(&r.log),
			Snapshots:     open(t, s, func(o *s3snapshot.Options) { o.RequestTimeout = requestTimeout }),
			SnapshotEvery: time.Second,
		}
		if len(all) > 0 {
			cfg.Join = []string{all[0].Members()[0].Addr}
		}
		var err error
		r.Node, err = weir.Start(within(t, patience), cfg)
		require.NoError(t, err)
		t.Cleanup(func() { _ = r.Close() })
		r.limit, err = r.Limiter(weir.Limit{Name: "daily", Algorithm: weir.FixedWindow, Rate: 1_000_000, Per: 24 * time.Hour})
		require.NoError(t, err)
		all = append(all, r)
	}
	until(t, "not all are ready", func() bool {
		return !slices.ContainsFunc(all, func(r *replica) bool { return !r.Ready() || len(r.Members()) < len(all) })
	})
	var asks []weir.Ask
	for key := range counts {
		asks = append(asks, weir.Ask{Limiter: all[0].limit, Key: fmt.Sprint("filled ", key)})
	}
	for some := range slices.Chunk(asks, 250) {
		_, err := all[0].AllowAll(t.Context(), some...)
		require.NoError(t, err)
	}
	return all
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, 2*patience, 20*time.Millisecond, what)
}

// phase asks each node, with pauses of a millisecond, for a time and until over reports true. It
// returns the times of the checks, less what this process ran late meanwhile because of others.
func phase(t *testing.T, all []*replica, lasts time.Duration, over func() bool) (own lab.Histogram, asked int) {
	t.Helper()
	lateness := lab.Lateness{Idle: true}
	lateness.Start(time.Millisecond, 0)
	defer lateness.Stop()
	var ended atomic.Bool
	var asking sync.WaitGroup
	var mu sync.Mutex
	for _, r := range all {
		asking.Go(func() {
			for i := 0; !ended.Load(); i++ {
				began, was := time.Now(), lateness.Total()
				d, err := r.limit.Allow(t.Context(), fmt.Sprint("asked ", i%1000))
				took := time.Since(began) - (lateness.Total() - was)
				if err != nil || !d.Allowed {
					t.Errorf("a check: %v, %+v", err, d)
					return
				}
				mu.Lock()
				own.Add(max(took, 0))
				asked++
				mu.Unlock()
				time.Sleep(time.Millisecond)
			}
		})
	}
	began := time.Now()
	for time.Since(began) < lasts || !over() && time.Since(began) < lasts+2*patience {
		time.Sleep(10 * time.Millisecond)
	}
	ended.Store(true)
	asking.Wait()
	require.True(t, over(), "what was to happen in this phase did not")
	return own, asked
}

// No check waits for the bucket, whatever it does. What was not written is counted, and logged
// at a bounded pace.
func TestABucketInTroubleMakesNoCheckLate(t *testing.T) {
	full.Only(t, "a bucket in each kind of trouble, with 200,000 counts; in the default run TestADiskThatHangsKeepsNothingWaiting shows that no check waits for a store")
	each(t, func(t *testing.T, s *server) {
		const lasts = 2 * time.Second // and until each node has saved, or failed to, as often as it must
		all := replicas(t, s, 200_000)
		began := time.Now()
		// since returns what reports whether a figure has grown twice on each node, each of which has
		// logged so many lines.
		since := func(of func(weir.SnapshotStats) uint64, lines int) func() bool {
			was := make([]uint64, len(all))
			for i, r := range all {
				was[i] = of(r.Stats().Snapshots)
			}
			return func() bool {
				for i, r := range all {
					if logged, _, _ := r.log.counted(); logged < lines || of(r.Stats().Snapshots) < was[i]+2 {
						return false
					}
				}
				return true
			}
		}
		saved := func(st weir.SnapshotStats) uint64 { return st.Saved }
		failures := func(st weir.SnapshotStats) uint64 { return st.Failures }
		stall := func(_ http.ResponseWriter, r *http.Request) bool {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		}
		overfull := func(w http.ResponseWriter, r *http.Request) bool {
			return r.Method != http.MethodGet && refuse(w, http.StatusInsufficientStorage, "XMinioStorageFull")
		}
		for _, p := range []struct {
			name        string
			begin, mend func()
			grows       func(weir.SnapshotStats) uint64
			says        string
			lines       int // of a node's log, at least
		}{
			{"well", func() {}, func() {}, saved, "", 0},
			{"killed", s.kill, s.start, failures, "s3snapshot: ", 1},
			{"slow", func() { s.misbehave(stall) }, func() { s.misbehave(nil) }, failures, "no answer within 1s", 1},
			{"full", func() { s.misbehave(overfull) }, func() { s.misbehave(nil) }, failures, "by the test", 2},
			{"well again", func() {}, func() {}, saved, "", 2},
		} {
			p.begin()
			own, asked := phase(t, all, lasts, since(p.grows, p.lines))
			for _, r := range all {
				require.Contains(t, r.Stats().Snapshots.Error, p.says, p.name)
			}
			p.mend()
			t.Logf("%-10s %6d checks, p50 %v, p99 %v, p999 %v, worst %v", p.name, asked, own.Quantile(0.5), own.Quantile(0.99), own.Quantile(0.999), own.Quantile(1))
			require.Less(t, own.Quantile(0.99), lateBy, p.name)
			require.Less(t, own.Quantile(1), waits, p.name)
		}
		for _, r := range all {
			st := r.Stats().Snapshots
			require.Empty(t, st.Error)
			lines, told, seen := r.log.counted()
			t.Logf("%d failures, %d lines", st.Failures, lines)
			require.Less(t, uint64(lines), st.Failures)
			require.Greater(t, told, uint64(lines), "the second line counts those that were not logged")
			require.LessOrEqual(t, lines, 1+int(time.Since(began)/pace.Every), "%q", seen)
			require.LessOrEqual(t, told, st.Failures, "what was not logged yet is told by the next line")
		}
	})
}
