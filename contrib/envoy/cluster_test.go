package envoylimit

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/weirtest"
)

// request returns a request in domain d.
func request(ds ...*ratelimit.RateLimitDescriptor) *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "d", Descriptors: ds}
}

// secrets contains the Secrets of each node. They encrypt reservations.
var secrets = [][]byte{[]byte("secret for tests")}

// runCluster runs a cluster of three nodes, each with a Service, in virtual time.
func runCluster(t *testing.T, text string, run func(t *testing.T, c *weirtest.Cluster, all []client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, err := weirtest.NewCluster(t.Context(), weirtest.Options{Config: weir.Config{Secrets: secrets}})
		require.NoError(t, err)
		defer c.Close()
		var all []client
		for _, name := range c.Names() {
			all = append(all, clientOf(t, serviceOf(t, c.Node(name), text, Options{Logger: slog.New(slog.DiscardHandler)})))
		}
		run(t, c, all)
	})
}

const shared = `
domain: d
descriptors:
- key: user
  rate_limit: {unit: hour, requests_per_unit: 10}
- key: all
  rate_limit: {unit: hour, requests_per_unit: 100}
`

// Envoy waits for 20 ms by default, and lets a request pass if there is no response by
// then.
func TestAnswerArrivesWithinTimeoutOfEnvoy(t *testing.T) {
	runCluster(t, shared, func(t *testing.T, c *weirtest.Cluster, all []client) {
		c.Freeze("b")
		for _, user := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			begun := time.Now()
			r, err := all[0].s.ShouldRateLimit(ctx, request(descriptorOf("user", user), descriptorOf("all", "")))
			require.NoError(t, err, user)
			require.NoError(t, ctx.Err(), user)
			require.LessOrEqual(t, time.Since(begun), 16*time.Millisecond, user)
			require.Equal(t, ok, r.OverallCode, user)
			cancel()
		}
	})
}

func TestChangedFileTakesEffectWithoutRestart(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "d.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	synctest.Test(t, func(t *testing.T) {
		c, err := weirtest.NewCluster(t.Context(), weirtest.Options{Nodes: []string{"a"}})
		require.NoError(t, err)
		defer c.Close()
		var log lab.Text
		s, err := New(c.Node("a"), parsed(t, "domain: none"), Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		left := func() int {
			r := clientOf(t, s).ask(descriptorOf("all", ""))
			if r.Statuses[0].CurrentLimit == nil {
				return -1
			}
			return int(r.Statuses[0].LimitRemaining)
		}
		lines := func(of string) int { synctest.Wait(); return strings.Count(log.String(), of) }

		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		done := make(chan error, 1)
		go func() { done <- s.Watch(ctx, dir, time.Second) }()
		time.Sleep(3*time.Second + time.Second/2) // the files change between two polls
		require.Equal(t, -1, left())
		require.Equal(t, 1, lines("refused"), "what is wrong is logged once")

		write("domain: d\ndescriptors: [{key: all, rate_limit: {unit: hour, requests_per_unit: 5}}]")
		time.Sleep(3 * time.Second)
		require.Equal(t, 4, left())
		require.Equal(t, 1, lines("is in force"))

		write("domain: d\ndescriptors: [{kye: all}]")
		time.Sleep(3 * time.Second)
		require.Equal(t, 3, left(), "the last good one stays in force")
		require.Equal(t, 2, lines("refused"))

		write("domain: d\ndescriptors: [{key: new}, {key: all, rate_limit: {unit: hour, requests_per_unit: 6, name: other}}]")
		time.Sleep(3 * time.Second)
		require.Equal(t, 3, left(), "counts go on")
		require.Equal(t, 2, lines("is in force"), "an unchanged configuration is put in force once")

		for lost := range 2 {
			require.NoError(t, os.Rename(file, file+".away"))
			time.Sleep(3 * time.Second)
			require.Equal(t, 3+lost, lines("refused"), "each loss of the file is logged once")
			require.NoError(t, os.Rename(file+".away", file))
			time.Sleep(3 * time.Second)
			require.Equal(t, 2-lost, left())
		}
		stop()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}
