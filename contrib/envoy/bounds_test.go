package envoylimit

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/weirtest"
)

// manyEntries returns a descriptor with the given number of entries, whose keys and values have
// size bytes each.
func manyEntries(entries, size int) *ratelimit.RateLimitDescriptor {
	pairs := make([]string, 0, 2*entries)
	for i := range entries {
		pairs = append(pairs, fmt.Sprintf("%0*d", size, i), strings.Repeat("v", size))
	}
	return descriptorOf(pairs...)
}

// ofPatterns returns a configuration with the given number of different patterns for one key. Each pattern begins
// with a.
func ofPatterns(patterns int) string {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for i := range patterns {
		fmt.Fprintf(&b, "- {key: path, value: 'a%d*', rate_limit: {unit: hour, requests_per_unit: 1}}\n", i)
	}
	return b.String()
}

// nestedPatterns returns a configuration with the given number of levels. Each level has
// patterns that do not fit, and a last pattern that fits.
func nestedPatterns(levels, patterns int) string {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors: ")
	for level := range levels {
		b.WriteString("[")
		for i := range patterns {
			fmt.Fprintf(&b, "{key: '%d', value: 'a%d*'}, ", level, i)
		}
		fmt.Fprintf(&b, "{key: '%d', value: 'v*', descriptors: ", level)
	}
	b.WriteString("[]" + strings.Repeat("}]", levels))
	return b.String()
}

func TestRequestWorkIsBounded(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	o := Options{Logger: slog.New(slog.DiscardHandler)}
	small, large := serviceOf(t, node, basic, o), serviceOf(t, node, ofPatterns(4000), o)
	deep := serviceOf(t, node, nestedPatterns(14, 700), o)
	own := func(d *ratelimit.RateLimitDescriptor) *ratelimit.RateLimitDescriptor {
		return limited(d, 1000, typev3.RateLimitUnit_DAY)
	}
	repeat := func(n int, d *ratelimit.RateLimitDescriptor) (all []*ratelimit.RateLimitDescriptor) {
		for range n {
			all = append(all, d)
		}
		return all
	}
	for _, c := range []struct {
		about   string
		service *Service
		ds      []*ratelimit.RateLimitDescriptor
		want    string // the error; empty for a response
		over    bool
	}{
		{"entries without end, with a limit of the request's", small, repeat(1, own(manyEntries(60_000, 1))), "a descriptor has 60000 entries: use at most 64", false},
		{"one entry too many, which no limit is for", small, repeat(1, manyEntries(65, 1)), "a descriptor has 65 entries: use at most 64", false},
		{"the most entries", small, repeat(1, own(manyEntries(64, 100))), "", false},
		{"the most entries of the most descriptors", small, repeat(255, own(manyEntries(64, 10))), "", false},
		{"a long value", small, repeat(1, descriptorOf("user", strings.Repeat("v", 4<<20-4))), "", false},
		{"a value that is too long", small, repeat(1, descriptorOf("user", strings.Repeat("v", 4<<20))), "", true},
		{"keys that are long together", small, repeat(255, own(manyEntries(2, 4000))), "", false},
		{"keys that are too long together", small, repeat(255, own(manyEntries(2, 4200))), "", true},
		{"all that Envoy takes as the headers of a request, ten times", small, repeat(10, own(descriptorOf("user", strings.Repeat("v", 60<<10)))), "", false},
		{"patterns", large, repeat(255, descriptorOf("path", "v")), "", false},
		{"patterns on each of many levels", deep, repeat(255, manyEntries(14, 1)), "", true},
	} {
		t.Run(c.about, func(t *testing.T) {
			r, err := c.service.ShouldRateLimit(t.Context(), request(c.ds...))
			if c.want == "" {
				require.NoError(t, err)
				require.Equal(t, c.over, r.OverallCode == over, "what is too long is denied, as an error would let it pass")
				require.Len(t, r.Statuses, len(c.ds))
				return
			}
			require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
			require.Equal(t, c.want, status.Convert(err).Message())
		})
	}
}

func TestOversizedRequestIsLoggedAndChangesNothing(t *testing.T) {
	var log bytes.Buffer
	o := Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	s := serviceOf(t, testnode.Start(t, weir.Config{}), basic, o)
	c, long := clientOf(t, s), descriptorOf("user", strings.Repeat("v", 4<<20))
	for range 3 {
		r := c.ask(descriptorOf("all", ""), long)
		require.Equal(t, over, r.OverallCode)
		require.Equal(t, over, r.Statuses[0].Code)
	}
	require.Equal(t, 1, strings.Count(log.String(), "msg="), log.String())
	require.Contains(t, log.String(), "the keys and values have 4194311 bytes: use at most 4194304")
	require.EqualValues(t, 4, c.ask(descriptorOf("all", "")).Statuses[0].LimitRemaining)
	other := &rls.RateLimitRequest{Domain: "other", Descriptors: []*ratelimit.RateLimitDescriptor{long}}
	require.Equal(t, ok, c.send(other).OverallCode, "no limit is for it")
	o.ShadowMode = true
	require.Equal(t, ok, clientOf(t, serviceOf(t, testnode.Start(t, weir.Config{}), basic, o)).ask(long).OverallCode)
}

// The allocations of a request measure its work independently of the machine.
func TestRequestWorkIsProportionalToSize(t *testing.T) {
	s := serviceOf(t, testnode.Start(t, weir.Config{}), basic+`
- key: named
  rate_limit: {unit: hour, requests_per_unit: 1000000, name: n, replaces: [{name: user}]}
`, Options{OnDecision: func(context.Context, *Decided) {}, Metadata: true})
	named := func(n int) *rls.RateLimitRequest {
		req := request()
		for i := range n {
			req.Descriptors = append(req.Descriptors, descriptorOf("named", fmt.Sprint(i)))
		}
		return req
	}
	for _, c := range []struct {
		about string
		of    func(n int) *rls.RateLimitRequest
		n     int // the test uses n and four times n
	}{
		{"entries", func(n int) *rls.RateLimitRequest {
			return request(limited(manyEntries(n, 1000), 1_000_000, typev3.RateLimitUnit_DAY))
		}, 16},
		{"bytes of a key", func(n int) *rls.RateLimitRequest {
			return request(limited(manyEntries(16, n), 1_000_000, typev3.RateLimitUnit_DAY))
		}, 4000},
		{"descriptors", func(n int) *rls.RateLimitRequest {
			req := request()
			for i := range n {
				req.Descriptors = append(req.Descriptors, limited(descriptorOf("k", fmt.Sprint(i)), 1_000_000, typev3.RateLimitUnit_DAY))
			}
			return req
		}, 60},
		{"limits that replace others", named, 60},
	} {
		t.Run(c.about, func(t *testing.T) {
			allocates := func(n int) float64 {
				req := c.of(n)
				var before, after runtime.MemStats
				const times = 10
				c := clientOf(t, s)
				c.send(req)
				runtime.ReadMemStats(&before)
				for range times {
					c.send(req)
				}
				runtime.ReadMemStats(&after)
				return float64(after.TotalAlloc-before.TotalAlloc) / times
			}
			small, large := allocates(c.n), allocates(4*c.n)
			t.Logf("%.0f bytes, then %.0f", small, large)
			require.Less(t, large/small, 6.0)
		})
	}
}

// A slow link delays each request to a member.
func TestRequestWithoutDeadlineHasBoundedWait(t *testing.T) {
	runCluster(t, shared, func(t *testing.T, c *weirtest.Cluster, all []client) {
		for _, to := range []string{"b", "c"} {
			for _, link := range [][2]string{{"a", to}, {to, "a"}} {
				c.Network().SetLink(link[0], link[1], weirtest.Link{Latency: 30 * time.Millisecond})
			}
		}
		var ds []*ratelimit.RateLimitDescriptor
		for i := range 255 {
			ds = append(ds, hits(0, "user", fmt.Sprint(i)))
		}
		begun := time.Now()
		require.Equal(t, ok, all[0].ask(ds...).OverallCode)
		require.LessOrEqual(t, time.Since(begun), 2*time.Second)
	})
}

func TestReadingStopsAtDeadline(t *testing.T) {
	s := serviceOf(t, testnode.Start(t, weir.Config{}), ofPatterns(4000), Options{})
	req := request(descriptorOf("path", strings.Repeat("v", 60<<10)))
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	_, err := s.ShouldRateLimit(late, req)
	require.Equal(t, codes.DeadlineExceeded, status.Code(err), "%v", err)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.ShouldRateLimit(gone, req)
	require.Equal(t, codes.Canceled, status.Code(err), "%v", err)
}
