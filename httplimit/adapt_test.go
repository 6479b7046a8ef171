package httplimit

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/rules"
	"github.com/weir-go/weir/weirtest"
)

func TestSlowResponsesLowerNumbersOnAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := weirtest.NewCluster(t.Context(), weirtest.Options{Config: weir.Config{Logger: slog.New(slog.DiscardHandler)}})
		require.NoError(t, err)
		defer c.Close()
		var takes atomic.Int64
		takes.Store(int64(20 * time.Millisecond))
		books, handlers := make(map[string]*rules.Book), make(map[string]http.Handler)
		for _, name := range c.Names() {
			books[name] = testnode.Book(t, c.Node(name), "rules: [{name: r, key: global, limit: {algorithm: token_bucket, rate: 100, per: 1s, burst: 10}, adapt: {latency: 100ms}}]")
			m, err := New(c.Node(name), books[name], Options{Logger: quietly})
			require.NoError(t, err)
			handlers[name] = m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(time.Duration(takes.Load()))
				w.WriteHeader(http.StatusOK)
			}))
		}
		factors := func() (all []float64) {
			for _, name := range c.Names() {
				all = append(all, books[name].Current().Adaptations()[0].Factor)
			}
			return all
		}
		load := func(d time.Duration) {
			var clients sync.WaitGroup
			for end, i := time.Now().Add(d), 0; time.Now().Before(end); i++ {
				time.Sleep(time.Second / 150)
				clients.Go(func() { handlers[c.Names()[i%3]].ServeHTTP(httptest.NewRecorder(), get("/", "192.0.2.1")) })
			}
			clients.Wait()
		}
		load(5 * time.Second)
		require.Equal(t, []float64{1, 1, 1}, factors(), "the server is well")
		takes.Store(int64(300 * time.Millisecond))
		load(5 * time.Second)
		low := factors()
		require.Less(t, low[0], 0.8)
		require.Equal(t, []float64{low[0], low[0], low[0]}, low)
		require.Equal(t, "slow", books["b"].FactorChanges()[0].Reason)
		takes.Store(int64(20 * time.Millisecond))
		load(20 * time.Second)
		require.Equal(t, []float64{1, 1, 1}, factors(), "the server is well again")
		require.Equal(t, "recovered", books["c"].FactorChanges()[0].Reason)
	})
}
