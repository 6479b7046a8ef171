package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// counter is a gateway that grants the prover units of a limit which all share.
type counter struct {
	limit  int64
	left   *atomic.Int64 // of all
	status int
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	left := c.left.Load()
	if c.status == http.StatusOK {
		left = c.left.Add(-1)
	}
	w.Header().Set("RateLimit-Policy", fmt.Sprintf(`"user/burst";q=20;w=2, "user/hour";q=%d;w=3600`, c.limit))
	w.Header().Set("RateLimit", fmt.Sprintf(`"user/burst";r=19;t=1, "user/hour";r=%d;t=3600`, left))
	w.WriteHeader(c.status)
}

func TestTheProofFails(t *testing.T) {
	for name, c := range map[string]struct {
		gateways func(all []*counter)
		fails    string // not at all if empty
	}{
		"never where all have one count":    {func([]*counter) {}, ""},
		"where a gateway has its own count": {func(all []*counter) { all[1].left = new(atomic.Int64); all[1].left.Store(100) }, "gateway 2 says"},
		"where a count was reset":           {func(all []*counter) { all[0].left.Store(100) }, "gateway 1 says"},
		"where more was spent than granted": {func(all []*counter) { all[0].left.Add(-1) }, "gateway 1 says"},
		"where a gateway has old rules":     {func(all []*counter) { all[2].limit = 50 }, "left of 50 an hour: it should be"},
		"where a gateway fails":             {func(all []*counter) { all[1].status = http.StatusServiceUnavailable }, "gateway 2 answered 503"},
		"where a gateway denies for ever":   {func(all []*counter) { all[1].status = http.StatusTooManyRequests; all[1].limit = 0 }, "gateway 2 says"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(options{nodes: 3, limit: 10}, time.Second, nil)
			f.proof.spent = 4
			left := new(atomic.Int64)
			left.Store(96)
			var all []*counter
			for i := range f.nodes {
				c := &counter{limit: 100, left: left, status: http.StatusOK}
				server := httptest.NewServer(c)
				t.Cleanup(server.Close)
				all = append(all, c)
				f.current[i] = &incarnation{gateway: i, condition: up, client: server.Client(), over: make(chan struct{})}
				f.current[i].site.HTTP = strings.TrimPrefix(server.URL, "http://")
			}
			c.gateways(all)
			err := f.prove(100, 3*provePause)
			if c.fails == "" {
				require.NoError(t, err)
				require.EqualValues(t, 7, f.proof.spent)
				return
			}
			require.ErrorContains(t, err, c.fails)
		})
	}
}

func TestAProofEndsWithTheDemo(t *testing.T) {
	f := newFleet(options{nodes: 1, limit: 10}, time.Second, nil)
	server := httptest.NewServer(http.NotFoundHandler())
	f.current[0] = &incarnation{condition: stopped, client: server.Client(), over: make(chan struct{})}
	f.current[0].site.HTTP = strings.TrimPrefix(server.URL, "http://")
	server.Close()
	require.ErrorIs(t, f.prove(100, time.Minute), errEnding)
}
