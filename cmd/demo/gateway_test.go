package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLeavingGatewayServesUntilNobodyAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var use drainage
		ready := http.StatusOK
		answer := func(status *int) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(*status) })
		}
		fine := http.StatusOK
		requests, probes := use.requests(answer(&fine)), use.probes(func() bool { return ready == http.StatusOK }, answer(&ready))
		ask := func(h http.Handler) {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		}
		ask(probes)
		begun := time.Now()
		over := make(chan time.Duration, 1)
		go func() {
			use.wait(t.Context())
			over <- time.Since(begun)
		}()
		for range 30 {
			time.Sleep(drain / 2)
			ask(requests)
		}
		ready = http.StatusServiceUnavailable
		ask(probes)
		for range 10 { // they were under way
			time.Sleep(drain / 2)
			ask(requests)
		}
		synctest.Wait()
		require.Empty(t, over)
		last := time.Since(begun)
		require.InDelta(t, last+drain, <-over, float64(3*lookInterval))

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		again := time.Now()
		new(drainage).wait(ctx) // no load balancer ever asks
		require.Equal(t, time.Minute, time.Since(again))
	})
}
