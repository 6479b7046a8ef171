package httplimit

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/weirtest"
)

// rotatedAPI is the admin API of one of three nodes, which services without a node of
// their own ask for checks.
type rotatedAPI struct {
	node *weir.Node
	mu   sync.Mutex
	api  http.Handler
}

func (a *rotatedAPI) accept(t *testing.T, tokens ...string) {
	var o AdminOptions
	for _, token := range tokens {
		o.Tokens = append(o.Tokens, []byte(token))
	}
	o.Logger = slog.New(slog.DiscardHandler)
	api, err := Admin(a.node, nil, o)
	require.NoError(t, err)
	a.mu.Lock()
	a.api = api
	a.mu.Unlock()
}

// check asks for a unit.
func (a *rotatedAPI) check(key string, limit int, token string) (status int, allowed bool) {
	a.mu.Lock()
	api := a.api
	a.mu.Unlock()
	body := fmt.Sprintf(`{"key":%q,"limit":%d,"window_ms":86400000}`, key, limit)
	r := httptest.NewRequest(http.MethodPost, "/v1/check", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	var answer checkAnswer
	if w.Code == http.StatusOK && json.Unmarshal(w.Body.Bytes(), &answer) != nil {
		return 0, false
	}
	return w.Code, answer.Allowed
}

// owned holds that the owners of keys have decided all checks of the node.
func (a *rotatedAPI) owned(t *testing.T) {
	for source := range a.node.Stats().Decisions {
		require.Contains(t, []weir.Source{weir.Owner, weir.Forwarded, weir.Relayed, weir.Pushback, weir.Leased}, source)
	}
}

// Tokens are read as a process starts, or the handler is made anew while it runs:
// both are played, with clients that change over at some time between the rollouts.
func TestAdminTokensAreRotatedInTwoRolloutsWithoutALostCheck(t *testing.T) {
	const (
		older, newer = "the-older-token-of-two", "the-newer-token-of-two"
		clients      = 20
		every        = 100 * time.Millisecond
		between      = 10 * time.Second
	)
	limitOf := func(client int) int { return 60 * (client + 1) } // each has one of its own, and so a count
	for _, restarts := range []bool{true, false} {
		t.Run(fmt.Sprint("with restarts: ", restarts), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				network := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond})
				start := func(host string, tokens ...string) *rotatedAPI {
					node, err := weir.Start(t.Context(), weir.Config{
						Cluster: network.Host(host).Cluster(cluster.Config{}), Logger: slog.New(slog.DiscardHandler),
					})
					require.NoError(t, err)
					t.Cleanup(func() { require.NoError(t, node.Close()) })
					a := &rotatedAPI{node: node}
					a.accept(t, tokens...)
					for begun := time.Now(); !node.Ready(); time.Sleep(10 * time.Millisecond) {
						require.Less(t, time.Since(begun), time.Minute)
					}
					return a
				}
				hosts := []string{"a", "b", "c"}
				var mu sync.Mutex // guards what follows
				var serving []*rotatedAPI
				for _, host := range hosts {
					serving = append(serving, start(host, older))
				}
				time.Sleep(between)
				tokens := slices.Repeat([]string{older}, clients)
				answers := make(map[int]int)
				admitted, asked := make([]int, clients), make([]int, clients)

				stop := make(chan struct{})
				var asking sync.WaitGroup
				for c := range clients {
					asking.Go(func() {
						time.Sleep(time.Duration(c) * every / clients)
						for turn := c; ; turn++ {
							select {
							case <-stop:
								return
							case <-time.After(every):
							}
							mu.Lock()
							a, token := serving[turn%len(serving)], tokens[c]
							mu.Unlock()
							status, allowed := a.check("key", limitOf(c), token)
							mu.Lock()
							answers[status]++
							asked[c]++
							if allowed {
								admitted[c]++
							}
							mu.Unlock()
						}
					})
				}
				rollOut := func(tokens ...string) {
					for i, host := range hosts {
						if !restarts {
							serving[i].accept(t, tokens...)
							time.Sleep(between)
							continue
						}
						leaving := serving[0] // the one that has run for the longest
						require.NoError(t, leaving.node.Leave(t.Context()))
						mu.Lock()
						serving = slices.Clone(serving[1:])
						mu.Unlock()
						time.Sleep(time.Second)
						leaving.owned(t)
						require.NoError(t, leaving.node.Close())
						network.Host(host).Kill()
						a := start(host, tokens...)
						mu.Lock()
						serving = append(serving, a)
						mu.Unlock()
						time.Sleep(between)
					}
				}
				rollOut(older, newer)
				for c := range clients {
					mu.Lock()
					tokens[c] = newer
					mu.Unlock()
					time.Sleep(time.Second)
				}
				rollOut(newer)
				close(stop)
				asking.Wait()

				require.Equal(t, []int{http.StatusOK}, slices.Collect(maps.Keys(answers)), "%v", answers)
				usedUp := 0
				for c := range clients {
					require.Equal(t, min(asked[c], limitOf(c)), admitted[c], "client %d", c)
					if asked[c] > limitOf(c) {
						usedUp++
					}
				}
				require.NotZero(t, usedUp)
				require.Less(t, usedUp, clients, "some are used up later than the last step")
				for _, a := range serving {
					a.owned(t)
					status, _ := a.check("key", 1, older)
					require.Equal(t, http.StatusUnauthorized, status)
					status, _ = a.check("key", 1, newer)
					require.Equal(t, http.StatusOK, status)
				}
				t.Logf("%d checks, %d of %d keys used up", answers[http.StatusOK], usedUp, clients)
			})
		})
	}
}

// docs/rotation.md has a service go from one cluster to another so: the old one decides,
// and the next one counts what that admits; then both have to admit.
func TestARequestIsCountedByTheMiddlewaresOfTwoClusters(t *testing.T) {
	const file = `rules: [{name: per address, key: ip, limit: {algorithm: sliding_log, rate: 5, per: 1h}}]`
	old := newLimiter(t, file, Options{}, weir.Config{})
	next := newLimiter(t, file, Options{NoXHeaders: true, NoIETFHeaders: true}, weir.Config{})
	oldFirst := old.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request := next.Request(r)
		next.Check(r.Context(), &request)
		hello.ServeHTTP(w, r)
	}))
	both := old.Handler(next.Handler(hello))
	const first, second, third = "192.0.2.1", "192.0.2.2", "192.0.2.3"
	admits := func(h http.Handler, from string, admitted int) (last *httptest.ResponseRecorder) {
		t.Helper()
		passed := 0
		for range 8 {
			if last = answer(h, get("/", from)); last.Code == http.StatusOK {
				passed++
			} else {
				require.Equal(t, http.StatusTooManyRequests, last.Code)
				require.NotEmpty(t, last.Header().Get(retryAfterField))
			}
		}
		require.Equal(t, admitted, passed)
		return last
	}
	for i, h := range []http.Handler{oldFirst, both} {
		from := []string{first, second}[i]
		admits(h, from, 5)
		require.Zero(t, left(t, old, "per address", from))
		require.Zero(t, left(t, next, "per address", from))
	}
	admits(next.Handler(hello), third, 5)
	require.Equal(t, http.StatusOK, answer(oldFirst, get("/", third)).Code, "the next one denies nothing yet")
	last := answer(both, get("/", third))
	require.Equal(t, http.StatusTooManyRequests, last.Code)
	require.Equal(t, []string{"3"}, last.Header()[remainingField], "the fields are the old one's")
}
