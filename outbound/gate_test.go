package outbound

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
)

func TestInvalidOptionsAreRefused(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	ok := []Limit{{Host: "*", Limit: paced}}
	for _, c := range []struct {
		want string
		o    Options
	}{
		{"Options.Limits is empty", Options{}},
		{"Options.MaxPause is -1s: it must be from 1ms to", Options{Limits: ok, MaxPause: -time.Second}},
		{"Options.Attempts is 11: it must be from 0 to 10", Options{Limits: ok, Attempts: 11}},
		{"Options.RetryPart is 1.5: it must be above 0 and at most 1", Options{Limits: ok, RetryPart: 1.5}},
		{"Options.Limits[0]: weir: invalid Limit: Host is \"https://a/b\"", Options{Limits: []Limit{{Host: "https://a/b", Limit: paced}}}},
		{"Host is \"\"", Options{Limits: []Limit{{Limit: paced}}}},
		{"Host is \"a.*\"", Options{Limits: []Limit{{Host: "a.*", Limit: paced}}}},
		{"Options.Limits[1]: weir: invalid Limit: Rate", Options{Limits: []Limit{ok[0], {Host: "a", Limit: weir.Limit{Name: "n", Per: time.Second}}}}},
		{"Algorithm is in_flight", Options{Limits: []Limit{{Host: "a", Limit: weir.Limit{Name: "n", Algorithm: weir.InFlight, Rate: 1}}}}},
	} {
		g, err := New(node, c.o)
		require.ErrorContains(t, err, c.want)
		require.ErrorIs(t, err, weir.ErrInvalid)
		require.Nil(t, g)
	}
	_, err := New(nil, Options{Limits: ok})
	require.ErrorIs(t, err, weir.ErrInvalid)
}

func TestLimitsApplyByHost(t *testing.T) {
	for _, c := range []struct {
		pattern string
		yes, no []string
	}{
		{"*", []string{"https://a", "http://[::1]:80"}, nil},
		{"API.example.com", []string{"https://api.example.com/x", "https://API.EXAMPLE.com.:444"}, []string{"https://example.com", "https://x.api.example.com"}},
		{"api.example.com:443", []string{"https://api.example.com", "https://api.example.com:443"}, []string{"http://api.example.com", "https://api.example.com:444"}},
		{"*.example.com", []string{"https://a.example.com", "https://a.b.example.com"}, []string{"https://example.com", "https://badexample.com", "https://.example.com.org"}},
		{"[2001:db8::1]:80", []string{"http://[2001:db8::1]"}, []string{"https://[2001:db8::1]", "http://[2001:db8::2]"}},
	} {
		h, err := parseHosts(c.pattern)
		require.NoError(t, err)
		for want, addresses := range map[bool][]string{true: c.yes, false: c.no} {
			for _, address := range addresses {
				u, err := url.Parse(address)
				require.NoError(t, err)
				require.Equal(t, want, h.contains(u), "%s %s", c.pattern, address)
			}
		}
	}
}

func TestFirstMatchingLimitApplies(t *testing.T) {
	posts := func(r *http.Request) bool { return r.Method == http.MethodPost }
	a, b := paced, paced
	a.Name, b.Name = "a", "b"
	g := newGate(t, Options{Limits: []Limit{{Host: "x.example", Match: posts, Limit: a}, {Host: "*.example", Limit: b}}})
	require.Equal(t, "a", g.limitOf(newRequest(t, "POST", "https://x.example")).name)
	require.Equal(t, "b", g.limitOf(newRequest(t, "GET", "https://x.example")).name)
	require.Nil(t, g.limitOf(newRequest(t, "GET", "https://y.test")))
	require.Nil(t, g.limitOf(&http.Request{}))
}

func TestRequestsWithoutLimitDoNotAllocate(t *testing.T) {
	g := newGate(t, Options{Limits: []Limit{{Host: "api.example.com", Limit: paced}, {Host: "*.example.com", Limit: paced}}})
	r := newRequest(t, "GET", "https://other.example.org/path")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if turn, err := g.Wait(r); turn != nil || err != nil {
			t.Error("there is a limit")
		}
	}))
	var none *Turn
	none.Pause(t.Context(), time.Second)
	require.Zero(t, g.Stats()["paced"])
}

func TestKeysHaveHostAndHashOfCredential(t *testing.T) {
	g := newGate(t, Options{})
	key := func(address string, pairs ...string) string {
		turn, err := g.Wait(newRequest(t, "GET", address, pairs...))
		require.NoError(t, err)
		return turn.key
	}
	require.Equal(t, "a.example", key("https://A.example:443/x"))
	require.Equal(t, key("https://a", "X-API-Key", "one"), key("https://a", "Authorization", "", "X-API-Key", "one"))
	require.Equal(t, "a.example", key("http://a.example.:80"))
	require.Equal(t, "a.example:80", key("https://a.example:80"))
	require.Equal(t, "a.example:8443", key("https://user:secret@a.example:8443"))
	require.Equal(t, "2001:db8::1:8443", key("https://[2001:db8::1:8443]"))
	require.Equal(t, "[2001:db8::1]:8443", key("https://[2001:db8::1]:8443"))
	seen := map[string]bool{}
	for _, field := range []string{"Authorization", "X-API-Key", "API-Key", "X-Goog-Api-Key"} {
		for _, secret := range []string{"Bearer one", strings.Repeat("long", 5000)} {
			k := key("https://a.example", field, secret)
			require.Regexp(t, "^a.example [0-9a-f]{32}$", k)
			require.Equal(t, k, key("https://a.example", field, secret))
			seen[k] = true
		}
	}
	require.Len(t, seen, 2, "a credential has one key, whatever its field")
	account := newGate(t, Options{Credential: func(*http.Request) string { return "account" }})
	one, err := account.Wait(newRequest(t, "GET", "https://a", "Authorization", "token 1"))
	require.NoError(t, err)
	two, err := account.Wait(newRequest(t, "GET", "https://a", "Authorization", "token 2"))
	require.NoError(t, err)
	require.Equal(t, one.key, two.key)
}

func TestRequestThatWouldBeLateFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := weir.Limit{Name: "slow", Algorithm: weir.LeakyBucket, Rate: 1, Per: 10 * time.Second, Burst: 2}
		g := newGate(t, Options{Limits: []Limit{{Host: "*", Limit: slow}}})
		client := &http.Client{Transport: g.Transport(roundTripper(func(*http.Request) (*http.Response, error) { return newResponse(200), nil }))}
		do := func(ctx context.Context) error {
			r := newRequest(t, "POST", "https://api.example.com", "Authorization", "secret")
			_, err := client.Do(r.WithContext(ctx))
			return err
		}
		require.NoError(t, do(t.Context()))
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		err := do(ctx)
		require.Zero(t, time.Since(begun))
		var delayed *ErrDelayed
		require.ErrorAs(t, err, &delayed)
		require.Equal(t, ErrDelayed{"api.example.com", "slow", 10 * time.Second, context.DeadlineExceeded}, *delayed)
		require.True(t, delayed.Timeout())
		require.ErrorContains(t, err, `request to api.example.com was not sent: the next turn of limit "slow" is in 10s: context deadline exceeded: send it later`)
		require.NotContains(t, err.Error(), "secret")

		leave, left := context.WithCancel(t.Context())
		second, third := make(chan error, 1), make(chan error, 1)
		go func() { second <- do(leave) }()
		synctest.Wait()
		err = do(t.Context())
		require.ErrorAs(t, err, &delayed)
		require.ErrorIs(t, err, weir.ErrFull)
		require.False(t, delayed.Timeout())
		require.ErrorContains(t, err, "raise Burst of the limit")
		left()
		require.ErrorIs(t, <-second, context.Canceled)
		time.Sleep(100 * time.Millisecond)
		go func() { third <- do(t.Context()) }()
		require.NoError(t, <-third, "a request that left has returned its place")
		require.Equal(t, 10*time.Second, time.Since(begun))
		require.Equal(t, Stats{Requests: 2, Unsent: 3, Waited: 9900 * time.Millisecond}, g.Stats()["slow"])
	})
}

func TestClosedNodeAdmitsOnlyFailOpenLimits(t *testing.T) {
	for policy, sends := range map[weir.PartitionPolicy]bool{weir.MajorityShare: false, weir.FailOpen: true} {
		l := paced
		l.Partition = policy
		node, err := weir.Start(t.Context(), weir.Config{Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		g, err := New(node, Options{Limits: []Limit{{Host: "*", Limit: l}}})
		require.NoError(t, err)
		require.NoError(t, node.Close())
		_, err = g.Wait(newRequest(t, "GET", "https://a"))
		require.Equal(t, sends, err == nil)
		require.Equal(t, !sends, errors.Is(err, weir.ErrClosed))
	}
}

func TestClosedNodeObeysPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := paced
		l.Partition = weir.FailOpen
		node, err := weir.Start(t.Context(), weir.Config{Logger: quiet})
		require.NoError(t, err)
		g, err := New(node, Options{Limits: []Limit{{Host: "*", Limit: l}}, Logger: quiet})
		require.NoError(t, err)
		require.NoError(t, node.Close())
		r := newRequest(t, "GET", "https://a")
		turn, err := g.Wait(r)
		require.NoError(t, err)
		turn.Pause(t.Context(), 5*time.Second)
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err = g.Wait(r.WithContext(ctx))
		require.Equal(t, &ErrDelayed{"a", "paced", 5 * time.Second, context.DeadlineExceeded}, err)
		require.Zero(t, time.Since(begun))
		_, err = g.Wait(r)
		require.NoError(t, err)
		require.Equal(t, 5*time.Second, time.Since(begun))
	})
}

func TestPauseIsLoggedWithoutCredential(t *testing.T) {
	var log bytes.Buffer
	g := newGate(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	turn, err := g.Wait(newRequest(t, "GET", "https://api.example.com", "Authorization", "Bearer secret"))
	require.NoError(t, err)
	turn.Pause(t.Context(), time.Second)
	turn.Pause(t.Context(), 2*time.Second)
	require.Equal(t, 1, strings.Count(log.String(), "\n"))
	require.Contains(t, log.String(), `msg="another service refused a request; requests to it wait" host=api.example.com limit=paced for=1s`)
	require.NotContains(t, log.String(), "secret")
	require.EqualValues(t, 2, g.Stats()["paced"].Pauses)
}
