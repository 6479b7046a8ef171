package httplimit

import (
	"context"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/rules"
)

// byLimiter returns a Middleware with a single limit on a new node.
func byLimiter(t testing.TB, l weir.Limit, o Options, cfg weir.Config) *Middleware {
	t.Helper()
	o.Logger = quietly
	limiter, err := testnode.Start(t, cfg).Limiter(l)
	require.NoError(t, err)
	m, err := ByLimiter(limiter, o)
	require.NoError(t, err)
	return m
}

var perMinute = weir.Limit{Name: "r", Algorithm: weir.FixedWindow, Rate: 2, Per: time.Minute}

// A Middleware with a single limit has the same responses as a rule with the same numbers.
func TestByLimiterAnswersLikeRule(t *testing.T) {
	const window, bucket = "{algorithm: fixed_window, rate: 2, per: 1m}", "{algorithm: token_bucket, rate: 2, per: 1m}"
	for _, c := range []struct {
		about, rule string
		limit       weir.Limit
		o           Options
		fields      []string
		closed      bool
		statuses    []int
	}{
		{"a window", "key: ip, limit: " + window, perMinute, Options{}, nil, false, []int{200, 200, 429, 429}},
		{"a bucket, as JSON", "key: ip, limit: " + bucket, weir.Limit{Name: "r", Algorithm: weir.TokenBucket, Rate: 2, Per: time.Minute}, Options{}, []string{"Accept", "application/json"}, false, []int{200, 200, 429}},
		{"as text", "key: ip, limit: " + window, perMinute, Options{}, []string{"Accept", "text/plain"}, false, []int{200, 200, 429}},
		{"without X- fields", "key: ip, limit: " + window, perMinute, Options{NoXHeaders: true}, nil, false, []int{200, 200, 429}},
		{"without RateLimit", "key: ip, limit: " + window, perMinute, Options{NoIETFHeaders: true}, nil, false, []int{200, 200, 429}},
		{"a closed node", "key: ip, limit: " + window, perMinute, Options{}, nil, true, []int{503}},
		{"a closed node that fails open", "key: ip, partition: fail_open, limit: " + window, weir.Limit{Name: "r", Algorithm: weir.FixedWindow, Rate: 2, Per: time.Minute, Partition: weir.FailOpen}, Options{}, nil, true, []int{200}},
		{"units in flight", "key: ip, limit: {algorithm: in_flight, rate: 2}", weir.Limit{Name: "r", Algorithm: weir.InFlight, Rate: 2}, Options{}, nil, false, []int{200, 200, 200}},
		{"a queue without room", "key: ip, queue: 10ms, limit: {algorithm: leaky_bucket, rate: 1, per: 30s, burst: 1}", weir.Limit{Name: "r", Algorithm: weir.LeakyBucket, Rate: 1, Per: 30 * time.Second, Burst: 1}, Options{Queue: 10 * time.Millisecond}, nil, false, []int{200, 429}},
	} {
		t.Run(c.about, func(t *testing.T) {
			ruled := c.o
			ruled.Queue = 0
			cfg := weir.Config{Now: func() time.Time { return noon }}
			both := []*Middleware{newLimiter(t, "rules:\n- {name: r, "+c.rule+"}\n", ruled, cfg), byLimiter(t, c.limit, c.o, cfg)}
			for _, m := range both {
				m.now = func() time.Time { return noon }
				if c.closed {
					require.NoError(t, m.node.Close())
				}
			}
			for _, status := range c.statuses {
				want := answer(both[0].Handler(hello), get("/", "192.0.2.1", c.fields...))
				got := answer(both[1].Handler(hello), get("/", "192.0.2.1", c.fields...))
				require.Equal(t, status, got.Code)
				require.Equal(t, want.Code, got.Code)
				require.Equal(t, want.Header(), got.Header())
				require.Equal(t, want.Body.String(), got.Body.String())
			}
		})
	}
}

func TestEmptyKeyIsClientAddress(t *testing.T) {
	proxied := RightmostUntrusted("X-Forwarded-For").TrustUnix()
	for _, c := range []struct {
		about  string
		o      Options
		from   string
		fields []string
		key    string
	}{
		{"an address", Options{}, "192.0.2.1", nil, "192.0.2.1"},
		{"an IPv6 network", Options{}, "[2001:db8::1]", nil, "2001:db8::/64"},
		{"IPv4 within IPv6", Options{}, "[::ffff:192.0.2.1]", nil, "192.0.2.1"},
		{"a field that is not trusted", Options{Client: proxied}, "192.0.2.1", []string{"X-Forwarded-For", "192.0.2.9"}, "192.0.2.1"},
		{"a field of a proxy", Options{Client: Header("X-Real-IP")}, "192.0.2.1", []string{"X-Real-IP", "192.0.2.9"}, "192.0.2.9"},
		{"a text", Options{Key: HeaderValue("X-Tenant")}, "192.0.2.1", []string{"X-Tenant", "acme"}, "acme"},
		{"no text", Options{Key: HeaderValue("X-Tenant")}, "192.0.2.1", nil, "192.0.2.1"},
		{"no text, an IPv6 network", Options{Key: HeaderValue("X-Tenant")}, "[2001:db8::1]", nil, "2001:db8::/64"},
		{"a text that is an address", Options{Key: HeaderValue("X-Tenant")}, "192.0.2.2", []string{"X-Tenant", "192.0.2.1"}, `\=192.0.2.1`},
		{"a text that is a network", Options{Key: HeaderValue("X-Tenant")}, "192.0.2.2", []string{"X-Tenant", "2001:db8::/64"}, `\=2001:db8::/64`},
		{"a text of digits", Options{Key: HeaderValue("X-Tenant")}, "192.0.2.2", []string{"X-Tenant", "1.2"}, "1.2"},
		{"a text that looks escaped", Options{Key: HeaderValue("X-Tenant")}, "192.0.2.2", []string{"X-Tenant", `\=192.0.2.1`}, `\\=192.0.2.1`},
	} {
		t.Run(c.about, func(t *testing.T) {
			var key string
			c.o.OnDecision = func(_ *http.Request, o *Outcome) { key = o.Verdicts[0].Key }
			m := byLimiter(t, perMinute, c.o, weir.Config{})
			require.Equal(t, 200, answer(m.Handler(hello), get("/", c.from, c.fields...)).Code)
			require.Equal(t, c.key, key)
		})
	}
}

func TestCheckByLimiterUsesUserAsKey(t *testing.T) {
	m := byLimiter(t, perMinute, Options{Key: HeaderValue("X-Tenant")}, weir.Config{})
	for i := range 3 {
		o := m.Check(t.Context(), &rules.Request{User: "acme"})
		require.Equal(t, i == 2, o.Status == http.StatusTooManyRequests)
	}
	require.Equal(t, 429, answer(m.Handler(hello), get("/", "192.0.2.1", "X-Tenant", "acme")).Code)
	require.Equal(t, 200, answer(m.Handler(hello), get("/", "192.0.2.1")).Code)
}

// tiers is an Observer that keeps the tiers of checks.
type tiers []string

func (s *tiers) Decided(ctx context.Context, _ weir.DecisionEvent) {
	*s = append(*s, weir.CallerOf(ctx).Tier)
}

func (s *tiers) Hopped(context.Context, weir.HopEvent) {}

func (s *tiers) UsesCallers() bool { return true }

func TestObserverOfByLimiterLearnsTier(t *testing.T) {
	var seen tiers
	m := byLimiter(t, perMinute, Options{}, weir.Config{Observer: &seen})
	m.Check(t.Context(), &rules.Request{Client: netip.MustParseAddr("192.0.2.1"), Tier: "gold"})
	require.Equal(t, tiers{"gold"}, seen)
}

func TestByLimiterRefusesOptionsWithoutEffect(t *testing.T) {
	n := testnode.Start(t, weir.Config{})
	quoted := perMinute
	quoted.Name = `a "b"`
	limiters := make(map[string]*weir.Limiter)
	for _, l := range []weir.Limit{perMinute, quoted} {
		limiter, err := n.Limiter(l)
		require.NoError(t, err)
		limiters[l.Name] = limiter
	}
	for _, c := range []struct {
		about, limit string
		o            Options
		names        string
	}{
		{"no Limiter", "none", Options{}, "the Limiter is nil"},
		{"a User", "r", Options{User: HeaderValue("X")}, "Options.User"},
		{"an APIKey", "r", Options{APIKey: HeaderValue("X")}, "APIKey"},
		{"a Tier", "r", Options{Tier: HeaderValue("X")}, "Tier"},
		{"a bound of a queue that is not there", "r", Options{MaxWaiting: 5}, "Options.MaxWaiting: 5"},
		{"a bound of a body that is not read", "r", Options{MaxBody: 5}, "Options.MaxBody: 5"},
		{"a queue of a window", "r", Options{Queue: time.Second}, "Options.Queue: 1s"},
		{"a queue of less than nothing", "r", Options{Queue: -1}, "Options.Queue: -1ns"},
		{"a client", "r", Options{Client: FromRight("X-Forwarded-For", 0)}, "Options.Client"},
		{"a name that no field can have", `a "b"`, Options{}, `a \"b\"`},
	} {
		_, err := ByLimiter(limiters[c.limit], c.o)
		require.ErrorIs(t, err, weir.ErrInvalid, c.about)
		require.ErrorContains(t, err, c.names, c.about)
	}
	_, err := ByLimiter(limiters[`a "b"`], Options{NoIETFHeaders: true})
	require.NoError(t, err)
	book := testnode.Book(t, n, "rules: []")
	for _, o := range []Options{{Key: HeaderValue("X")}, {Queue: time.Second}} {
		_, err := New(n, book, o)
		require.ErrorIs(t, err, weir.ErrInvalid)
		require.ErrorContains(t, err, "use ByLimiter")
	}
}

// Only requests that are selected by Options.Critical or by the rule spend the kept units of a limit.
func TestCriticalRequestsSpendKeptUnits(t *testing.T) {
	o := Options{Critical: func(r *http.Request) bool { return r.URL.Path == "/internal" }}
	cfg := weir.Config{Now: func() time.Time { return noon }}
	keeps := perMinute
	keeps.Rate, keeps.Keep = 4, 2
	for _, c := range []struct {
		m        *Middleware
		critical string
	}{
		{newLimiter(t, "rules:\n- {name: r, key: ip, limit: {algorithm: fixed_window, rate: 4, per: 1m, keep: 50%}, critical: {path: /pay}}\n", o, cfg), "/pay"},
		{byLimiter(t, keeps, o, cfg), "/internal"},
	} {
		for i, want := range []struct {
			path             string
			status           int
			limit, remaining string
		}{
			{"/", 200, "2", "1"}, {"/", 200, "2", "0"}, {"/", 429, "2", "0"},
			{c.critical, 200, "4", "1"}, {"/", 429, "2", "0"}, {"/internal", 200, "4", "0"}, {c.critical, 429, "4", "0"},
		} {
			w := answer(c.m.Handler(hello), get(want.path, "192.0.2.1"))
			require.Equal(t, want.status, w.Code, i)
			require.Equal(t, []string{want.limit, want.remaining}, []string{w.Header().Get("X-RateLimit-Limit"), w.Header().Get("X-RateLimit-Remaining")}, i)
			require.Equal(t, `"r";q=`+want.limit+";w=60", w.Header().Get("RateLimit-Policy"), i)
		}
	}
	_, err := ByLimiter(byLimiter(t, perMinute, Options{}, cfg).one.limiter, o)
	require.ErrorContains(t, err, `Options.Critical: limit "r" keeps no units: set Limit.Keep, or leave Critical out`)
}
