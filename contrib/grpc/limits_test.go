package grpclimit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/rules"
)

// service responds to each call and echoes each message of a stream.
type service struct {
	pb.UnimplementedTestServiceServer
	calls    atomic.Int64
	messages atomic.Int64
	goesOn   bool // continues after a denied message
}

func (s *service) EmptyCall(ctx context.Context, _ *pb.Empty) (*pb.Empty, error) {
	s.calls.Add(1)
	return &pb.Empty{}, grpc.SetHeader(ctx, metadata.Pairs("x-own", "1"))
}

func (s *service) FullDuplexCall(stream grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	s.calls.Add(1)
	for {
		_, err := stream.Recv()
		switch {
		case err == io.EOF:
			return nil
		case err != nil && !(s.goesOn && status.Code(err) == codes.ResourceExhausted):
			return err
		case err == nil:
			s.messages.Add(1)
		}
		answer := &pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: []byte(status.Code(err).String())}}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

// serve starts a server on the loopback interface for the given service and limits.
func serve(t *testing.T, s pb.TestServiceServer, limits ...*Limits) pb.TestServiceClient {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var unary []grpc.UnaryServerInterceptor
	var streams []grpc.StreamServerInterceptor
	for _, l := range limits {
		unary, streams = append(unary, l.Unary()), append(streams, l.Stream())
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(streams...))
	pb.RegisterTestServiceServer(server, s)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return pb.NewTestServiceClient(conn)
}

// byRules returns Limits with a separate node.
func byRules(t *testing.T, text string, o Options) *Limits {
	t.Helper()
	node := testnode.Start(t, weir.Config{})
	limits, err := New(node, testnode.Book(t, node, text), o)
	require.NoError(t, err)
	return limits
}

func byLimiter(t *testing.T, l *weir.Limiter, o Options) *Limits {
	t.Helper()
	limits, err := ByLimiter(l, o)
	require.NoError(t, err)
	return limits
}

// byBoth returns two Limits of a node, by a rule named r and by a Limiter.
func byBoth(t *testing.T, node *weir.Node, rule string, l weir.Limit, o Options) []*Limits {
	t.Helper()
	limits, err := New(node, testnode.Book(t, node, "rules: [{name: r, "+rule+"}]"), o)
	require.NoError(t, err)
	return []*Limits{limits, byLimiter(t, testnode.Limiter(t, node, l), o)}
}

// call makes a call with metadata, and returns the header and the status.
func call(t *testing.T, c pb.TestServiceClient, pairs ...string) (metadata.MD, *status.Status) {
	t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), pairs...), 10*time.Second)
	defer cancel()
	var header metadata.MD
	_, err := c.EmptyCall(ctx, &pb.Empty{}, grpc.Header(&header))
	return header, status.Convert(err)
}

// details returns the RetryInfo and the QuotaFailure of a status.
func details(s *status.Status) (retry *errdetails.RetryInfo, quota *errdetails.QuotaFailure) {
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			retry = d
		case *errdetails.QuotaFailure:
			quota = d
		}
	}
	return retry, quota
}

const twoCalls = `
rules:
- name: calls
  match: {path: /grpc.testing.TestService/}
  key: ip
  limits:
  - {name: minute, algorithm: fixed_window, rate: 2, per: 1m}
  - {name: hour, rate: 1000, per: 1h}
`

func TestDeniedCallHasDetailsForClient(t *testing.T) {
	s := new(service)
	c := serve(t, s, byRules(t, twoCalls, Options{}))
	for i := range 2 {
		header, st := call(t, c)
		require.Equal(t, codes.OK, st.Code(), st.Message())
		require.Equal(t, []string{"2"}, header.Get("x-ratelimit-limit"))
		require.Equal(t, []string{strconv.Itoa(1 - i)}, header.Get("x-ratelimit-remaining"))
		require.Contains(t, header.Get("ratelimit")[0], `"calls/hour";r=`)
		require.Equal(t, []string{`"calls/minute";q=2;w=60, "calls/hour";q=1000;w=3600`}, header.Get("ratelimit-policy"))
		require.Equal(t, []string{"1"}, header.Get("x-own"), "what the handler says is there too")
		require.Empty(t, header.Get("retry-after"))
	}
	header, st := call(t, c)
	require.Equal(t, codes.ResourceExhausted, st.Code())
	require.True(t, strings.HasPrefix(st.Message(), `rate limit exceeded ("calls/minute"): try again in `), st.Message())
	retry, quota := details(st)
	require.Greater(t, retry.RetryDelay.AsDuration(), 50*time.Second)
	require.LessOrEqual(t, retry.RetryDelay.AsDuration(), time.Minute)
	require.Len(t, quota.Violations, 1)
	require.Equal(t, "limit:calls/minute", quota.Violations[0].Subject)
	require.Equal(t, "2 per 1m, fixed_window, majority_share", quota.Violations[0].Description)
	require.EqualValues(t, 2, quota.Violations[0].QuotaValue)
	seconds, err := strconv.Atoi(header.Get("retry-after")[0])
	require.NoError(t, err)
	require.InDelta(t, retry.RetryDelay.AsDuration().Seconds(), seconds, 1)
	require.Equal(t, []string{"0"}, header.Get("x-ratelimit-remaining"))
	require.EqualValues(t, 2, s.calls.Load(), "the handler does not see it")
	require.NotContains(t, st.Message(), "127.0.0.1")
	require.NotContains(t, quota.String(), "127.0.0.1")
}

func TestDeniedCallHasTextsOfRule(t *testing.T) {
	c := serve(t, new(service), byRules(t, twoCalls+"  denied: {detail: 'over {limit} of {name}', upgrade_url: 'https://example.com/', headers: {X-Up: '{limit}'}}", Options{}))
	for range 2 {
		call(t, c)
	}
	header, st := call(t, c)
	require.Equal(t, "over 2 of calls/minute", st.Message())
	require.Equal(t, []string{"2"}, header.Get("x-up"))
	require.Equal(t, "https://example.com/", st.Details()[0].(*errdetails.Help).Links[0].Url)
	retry, quota := details(st)
	require.True(t, retry != nil && quota != nil)
}

// If a call passes several Limits, the strictest limit determines the numbers. If two of them
// check the same limit, the metadata has a single item for this limit, with the units that are
// left after the second check.
func TestStrictestLimitSetsMetadata(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	limitsOf := func(name string, rate int64) *Limits {
		l := weir.Limit{Name: name, Algorithm: weir.FixedWindow, Rate: rate, Per: time.Hour}
		return byLimiter(t, testnode.Limiter(t, node, l), Options{})
	}
	for about, ask := range map[string]func(pb.TestServiceClient) (metadata.MD, codes.Code){
		"unary": func(c pb.TestServiceClient) (metadata.MD, codes.Code) {
			header, st := call(t, c)
			return header, st.Code()
		},
		"stream": func(c pb.TestServiceClient) (metadata.MD, codes.Code) {
			stream, err := c.FullDuplexCall(t.Context())
			require.NoError(t, err)
			require.NoError(t, stream.CloseSend())
			if _, err = stream.Recv(); err == io.EOF {
				err = nil
			}
			header, _ := stream.Header()
			return header, status.Code(err)
		},
	} {
		for _, rates := range [][2]int64{{1000, 3}, {3, 1000}} {
			first, second := fmt.Sprint(about, rates[0], " first"), fmt.Sprint(about, rates[0], " second")
			c := serve(t, new(service), limitsOf(first, rates[0]), limitsOf(second, rates[1]))
			for i, want := range []codes.Code{codes.OK, codes.OK, codes.OK, codes.ResourceExhausted} {
				header, code := ask(c)
				require.Equal(t, want, code, about)
				require.Equal(t, []string{"3"}, header.Get("x-ratelimit-limit"), about)
				require.Equal(t, []string{strconv.Itoa(max(0, 2-i))}, header.Get("x-ratelimit-remaining"), about)
				require.Equal(t, want != codes.OK, len(header.Get("retry-after")) > 0, about)
				if want == codes.OK {
					require.Regexp(t, fmt.Sprintf(`^"%s";r=\d+;t=\d+, "%s";r=\d+;t=\d+$`, first, second), strings.Join(header.Get("ratelimit"), "|"))
				}
			}
		}
		twice := limitsOf(about, 10)
		header, _ := ask(serve(t, new(service), twice, twice))
		require.Equal(t, []string{"8"}, header.Get("x-ratelimit-remaining"), about)
		require.Equal(t, []string{fmt.Sprintf(`"%s";q=10;w=3600`, about)}, header.Get("ratelimit-policy"), about)
	}
}

func TestOversizedCallHasNoRetryInfo(t *testing.T) {
	c := serve(t, new(service), byRules(t, "rules: [{name: r, key: ip, cost: header:X-Cost, limit: {rate: 5, per: 1m}}]", Options{}))
	_, st := call(t, c, "x-cost", "6")
	require.Equal(t, codes.ResourceExhausted, st.Code())
	require.Equal(t, `the call costs more than its limit can ever grant ("r")`, st.Message())
	retry, quota := details(st)
	require.Nil(t, retry)
	require.Equal(t, "r", quota.Violations[0].QuotaId)
	header, st := call(t, c, "x-cost", "5")
	require.Equal(t, codes.OK, st.Code())
	require.Equal(t, []string{"0"}, header.Get("x-ratelimit-remaining"))
}

func TestCallFailsClosedWithUnavailable(t *testing.T) {
	node := testnode.Start(t, weir.Config{Bind: "127.0.0.1:0", Expect: 3})
	closed := weir.Limit{Name: "l", Rate: 5, Per: time.Minute, Partition: weir.FailClosed}
	both := byBoth(t, node, "key: ip, partition: fail_closed, limit: {rate: 5, per: 1m}", closed, Options{})
	for range 2 {
		for _, limits := range both {
			s := new(service)
			header, st := call(t, serve(t, s, limits))
			require.Equal(t, codes.Unavailable, st.Code(), st.Message())
			retry, quota := details(st)
			require.GreaterOrEqual(t, retry.RetryDelay.AsDuration(), time.Second)
			require.Nil(t, quota, "no quota of the client's is exceeded")
			require.NotEmpty(t, header.Get("retry-after"))
			require.Zero(t, s.calls.Load())
		}
		require.NoError(t, node.Close()) // a closed node decides in the same way
	}
}

func TestClosedNodeAdmitsCallsOfFailOpenLimit(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	open := weir.Limit{Name: "l", Rate: 1, Per: time.Hour, Partition: weir.FailOpen}
	both := byBoth(t, node, "key: global, partition: fail_open, limit: {rate: 1, per: 1h}", open, Options{})
	require.NoError(t, node.Close())
	for _, limits := range both {
		c := serve(t, new(service), limits)
		for range 3 {
			header, st := call(t, c)
			require.Equal(t, codes.OK, st.Code())
			require.Empty(t, header.Get("x-ratelimit-remaining"), "nothing is known of a count")
		}
	}
}

func TestCallOfDisconnectedClientIsCancelled(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	open := weir.Limit{Name: "l", Rate: 1, Per: time.Hour, Partition: weir.FailOpen}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var seen []int
	o := Options{OnDecision: func(_ context.Context, _ *rules.Request, o *httplimit.Outcome) { seen = append(seen, o.Status) }}
	for _, limits := range byBoth(t, node, "key: global, limit: {rate: 1, per: 1h}", open, o) {
		f := &fields{header: make(http.Header)}
		_, err := limits.admit(gone, limits.request(gone, "/a.S/M"), nil, f)
		require.Equal(t, codes.Canceled, status.Code(err))
		require.Empty(t, f.header.Get("Retry-After"))
	}
	require.Equal(t, []int{httplimit.StatusClientGone, httplimit.StatusClientGone}, seen)
}

func TestStreamsAndTheirMessagesAreCountedSeparately(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	l := testnode.Limiter(t, node, weir.Limit{Name: "messages", Algorithm: weir.FixedWindow, Rate: 3, Per: time.Minute})
	limits, err := New(node, testnode.Book(t, node, twoCalls), Options{Messages: byLimiter(t, l, Options{})})
	require.NoError(t, err)
	s := &service{}
	c := serve(t, s, limits)
	stream, err := c.FullDuplexCall(t.Context())
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, stream.Send(&pb.StreamingOutputCallRequest{}))
		_, err = stream.Recv()
		require.NoError(t, err)
	}
	header, err := stream.Header()
	require.NoError(t, err)
	require.Equal(t, []string{"1"}, header.Get("x-ratelimit-remaining"), "of streams")
	require.NoError(t, stream.Send(&pb.StreamingOutputCallRequest{}))
	_, err = stream.Recv()
	st := status.Convert(err)
	require.Equal(t, codes.ResourceExhausted, st.Code())
	retry, quota := details(st)
	require.Positive(t, retry.RetryDelay.AsDuration())
	require.Equal(t, "limit:messages", quota.Violations[0].Subject)
	require.EqualValues(t, 3, s.messages.Load())
}

func TestHandlerMayContinueAfterDeniedMessage(t *testing.T) {
	l := limiter(t, weir.Limit{Name: "messages", Rate: 2, Per: time.Hour})
	noKey := func(context.Context, *rules.Request) (string, bool) { return "", false }
	c := serve(t, &service{goesOn: true}, byLimiter(t, l, Options{Messages: byLimiter(t, l, Options{}), Key: noKey}))
	stream, err := c.FullDuplexCall(t.Context())
	require.NoError(t, err)
	var answers []string
	for i := range 5 {
		if i == 4 {
			require.NoError(t, l.Reset(t.Context(), "127.0.0.1"))
		}
		require.NoError(t, stream.Send(&pb.StreamingOutputCallRequest{}))
		answer, err := stream.Recv()
		require.NoError(t, err)
		answers = append(answers, string(answer.Payload.Body))
	}
	require.Equal(t, []string{"OK", "OK", "ResourceExhausted", "ResourceExhausted", "OK"}, answers)
}

// A client that sends a false address has a separate count, and spends no units of other
// clients. A proxy on a Unix socket has no address: an option makes the proxy trusted, or
// a warning is logged once.
func TestClientAddressComesFromTrustedSource(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	tcp, unix := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, &net.UnixAddr{Name: "@", Net: "unix"}
	forwarded := []string{"x-forwarded-for", "192.0.2.1"}
	for _, c := range []struct {
		about  string
		peer   net.Addr
		client httplimit.ClientAddress
		pairs  []string
		want   string
		warns  int
	}{
		{"no trust", tcp, httplimit.ClientAddress{}, forwarded, "127.0.0.1", 0},
		{"many lines are one list", tcp, httplimit.FromRight("X-Forwarded-For", 2), []string{"x-forwarded-for", "203.0.113.9", "x-forwarded-for", "192.0.2.1, 198.51.100.1"}, "192.0.2.1", 0},
		{"a peer that is not trusted", tcp, httplimit.RightmostUntrusted("X-Forwarded-For", netip.MustParsePrefix("10.0.0.0/8")), forwarded, "127.0.0.1", 0},
		{"Forwarded", tcp, httplimit.FromRight("Forwarded", 1), []string{"forwarded", `for="[2001:db8::1]:80"`}, "2001:db8::1", 0},
		{"one header, twice", tcp, httplimit.Header("X-Real-IP"), []string{"x-real-ip", "192.0.2.1", "x-real-ip", "192.0.2.2"}, "127.0.0.1", 0},
		{"a Unix socket that is trusted", unix, httplimit.RightmostUntrusted("X-Forwarded-For").TrustUnix(), forwarded, "192.0.2.1", 0},
		{"a Unix socket that is not", unix, httplimit.RemoteAddr(), forwarded, "invalid IP", 1},
	} {
		var seen []string
		log := new(bytes.Buffer)
		o := Options{
			Client: c.client, Logger: slog.New(slog.NewTextHandler(log, nil)),
			OnDecision: func(_ context.Context, r *rules.Request, _ *httplimit.Outcome) {
				seen = append(seen, r.Client.String())
			},
		}
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: c.peer})
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs(c.pairs...))
		for _, limits := range byBoth(t, node, "key: ip, limit: {rate: 99, per: 1h}", weir.Limit{Name: "l", Rate: 99, Per: time.Hour}, o) {
			seen = nil
			log.Reset()
			for range 2 {
				_, err := limits.admit(ctx, limits.request(ctx, "/a.S/M"), nil, nil)
				require.NoError(t, err)
			}
			require.Equal(t, []string{c.want, c.want}, seen, c.about)
			require.Equal(t, c.warns, strings.Count(log.String(), "TrustUnix"), c.about)
		}
	}
}

func TestRulesMatchCallLikeHTTPRequest(t *testing.T) {
	var seen rules.Request
	var met []string
	limits := byRules(t, `
tiers: {free: {}, gold: {multiply: 10}}
rules:
- {name: a, match: {method: POST, path: /grpc.testing.TestService/EmptyCall, header: {X-Plan: gold}, tier: gold}, key: [user, api_key], limit: {rate: 1, per: 1m}}
- {name: b, match: {method: GET}, key: ip, limit: {rate: 1, per: 1m}}
- {name: c, match: {path: /grpc.testing.TestService/Other}, key: ip, limit: {rate: 1, per: 1m}}
`, Options{
		User: MetadataValue("X-User"), APIKey: BearerToken, Tier: func(context.Context) string { return "gold" },
		OnDecision: func(_ context.Context, r *rules.Request, o *httplimit.Outcome) {
			seen = *r
			for _, v := range o.Verdicts {
				met = append(met, v.Decision.Name+" "+v.Key)
			}
		},
	})
	c := serve(t, new(service), limits)
	header, st := call(t, c, "x-plan", "gold", "x-user", "u|1", "authorization", "bearer  k", "x-bytes-bin", "\x00")
	require.Equal(t, codes.OK, st.Code())
	require.Equal(t, []string{`a u\|1|k`}, met)
	require.Equal(t, []string{"10"}, header.Get("x-ratelimit-limit"))
	require.Equal(t, "POST", seen.Method)
	require.True(t, strings.HasPrefix(seen.Host, "127.0.0.1:"), seen.Host)
	require.NotContains(t, seen.Header, "X-Bytes-Bin")
	require.EqualValues(t, -1, seen.Length)

	header, st = call(t, c, "x-plan", "silver")
	require.Equal(t, codes.OK, st.Code())
	require.Empty(t, header.Get("x-ratelimit-limit"), "it met no rule")
	require.Len(t, met, 1)
}

func TestCriticalCallsSpendKeptUnits(t *testing.T) {
	o := Options{Critical: func(ctx context.Context) bool { return MetadataValue("x-internal")(ctx) == "true" }}
	l := limiter(t, weir.Limit{Name: "l", Rate: 2, Per: time.Hour, Keep: 1})
	for _, limits := range []*Limits{byLimiter(t, l, o), byRules(t, "rules: [{name: r, key: ip, limit: {rate: 2, per: 1h, keep: 50%}}]", o)} {
		c := serve(t, new(service), limits)
		for i, want := range []codes.Code{codes.OK, codes.ResourceExhausted, codes.OK, codes.ResourceExhausted} {
			_, st := call(t, c, "x-internal", strconv.FormatBool(i > 1))
			require.Equal(t, want, st.Code(), i)
		}
	}
}

func TestOptionsOmitMetadataAndSkipMethods(t *testing.T) {
	l := limiter(t, weir.Limit{Name: "l", Rate: 1, Per: time.Minute})
	c := serve(t, new(service), byLimiter(t, l, Options{NoMetadata: true}))
	header, st := call(t, c)
	require.Equal(t, codes.OK, st.Code())
	require.Empty(t, header.Get("x-ratelimit-limit"))
	_, st = call(t, c)
	require.Equal(t, codes.ResourceExhausted, st.Code())

	skip := func(method string) bool { return method == "/grpc.testing.TestService/EmptyCall" }
	header, st = call(t, serve(t, new(service), byLimiter(t, l, Options{Skip: skip})))
	require.Equal(t, codes.OK, st.Code())
	require.Empty(t, header.Get("x-ratelimit-limit"))
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	book := testnode.Book(t, node, twoCalls)
	l := testnode.Limiter(t, node, weir.Limit{Name: "l", Rate: 1, Per: time.Minute})
	odd := testnode.Limiter(t, node, weir.Limit{Name: "a\"\n", Rate: 1, Per: time.Minute})
	calls := testnode.Limiter(t, node, inFlight)
	holds, nested := byLimiter(t, calls, Options{}), byLimiter(t, l, Options{Messages: byLimiter(t, l, Options{})})
	estimate := func(context.Context, any) int64 { return 1 }
	for _, c := range []struct {
		want string
		make func() (*Limits, error)
	}{
		{"weir: invalid httplimit.New: node or book is nil: pass a Node that was started, and the Book that rules.Open returned", func() (*Limits, error) { return New(nil, book, Options{}) }},
		{"weir: invalid Options.Key: rules have their own keys: use ByLimiter, or leave it nil", func() (*Limits, error) { return New(node, book, Options{Key: perMethod}) }},
		{"weir: invalid Options.User, APIKey, Tier and Claim: only rules use them: set Key, or call New with rules", func() (*Limits, error) { return ByLimiter(l, Options{User: BearerToken}) }},
		{"weir: invalid Options.User, APIKey, Tier and Claim: only rules use them: set Key, or call New with rules", func() (*Limits, error) { return ByLimiter(l, Options{APIKey: BearerToken}) }},
		{"weir: invalid Options.User, APIKey, Tier and Claim: only rules use them: set Key, or call New with rules", func() (*Limits, error) { return ByLimiter(l, Options{Tier: BearerToken}) }},
		{"weir: invalid Options.User, APIKey, Tier and Claim: only rules use them: set Key, or call New with rules", func() (*Limits, error) {
			return ByLimiter(l, Options{Claim: func(context.Context, string) string { return "" }})
		}},
		{"weir: invalid Options.Client: FromRight(0): use 1 for the rightmost address, or more", func() (*Limits, error) {
			return ByLimiter(l, Options{Client: httplimit.FromRight("X-Forwarded-For", 0)})
		}},
		{"weir: invalid grpclimit.ByLimiter: the Limiter is nil: pass one that Node.Limiter returned", func() (*Limits, error) { return ByLimiter(nil, Options{}) }},
		{`weir: invalid grpclimit.ByLimiter: metadata cannot carry the limit's name "a\"\n": use letters, digits and spaces, or set Options.NoMetadata`, func() (*Limits, error) { return ByLimiter(odd, Options{}) }},
		{"no option settles the estimate", func() (*Limits, error) { return ByLimiter(l, Options{Estimate: estimate}) }},
		{"is not a name of text", func() (*Limits, error) { return ByLimiter(l, Options{SettleTrailer: "Cost-Bin"}) }},
		{"has no end", func() (*Limits, error) { return ByLimiter(l, Options{Messages: holds}) }},
		{"has no end", func() (*Limits, error) { return New(node, book, Options{Messages: holds}) }},
		{"has no messages", func() (*Limits, error) { return ByLimiter(l, Options{Messages: nested}) }},
		{"is in_flight", func() (*Limits, error) { return ByLimiter(calls, Options{Settle: usage}) }},
		{"use ByLimiter", func() (*Limits, error) { return New(node, book, Options{Settle: usage}) }},
		{"use ByLimiter", func() (*Limits, error) { return New(node, book, Options{SettleTrailer: "x-cost"}) }},
		{"use ByLimiter", func() (*Limits, error) { return New(node, book, Options{Estimate: estimate}) }},
	} {
		limits, err := c.make()
		require.ErrorContains(t, err, c.want)
		require.ErrorIs(t, err, weir.ErrInvalid)
		require.Nil(t, limits)
	}
	byLimiter(t, odd, Options{NoMetadata: true})
}
