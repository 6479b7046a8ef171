package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health" // a client that balances by health needs it
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
)

// traffic is a set of goroutines that send requests until stop is called.
type traffic struct {
	asked  atomic.Int64
	stop   context.CancelFunc
	asking sync.WaitGroup
	mu     sync.Mutex
	failed []error // the goroutine that adds the tenth error ends
}

func send(t *testing.T, ask func(ctx context.Context, key string) error) *traffic {
	over, stop := context.WithCancel(t.Context())
	f := &traffic{stop: stop}
	for worker := range 4 {
		f.asking.Go(func() {
			for i := 0; over.Err() == nil; i++ {
				ctx, cancel := context.WithTimeout(t.Context(), eventually)
				err := ask(ctx, fmt.Sprintf("%d-%d", worker, i%100))
				cancel()
				f.asked.Add(1)
				if err != nil {
					f.mu.Lock()
					f.failed = append(f.failed, err)
					enough := len(f.failed) == 10
					f.mu.Unlock()
					if enough {
						return
					}
				}
			}
		})
	}
	t.Cleanup(stop)
	return f
}

// awaitRequests waits until n more requests have been sent.
func (f *traffic) awaitRequests(t *testing.T, n int64) {
	t.Helper()
	begun := f.asked.Load()
	wait(t, func() bool { return f.asked.Load() > begun+n })
}

func (f *traffic) end(t *testing.T, what string) {
	t.Helper()
	f.stop()
	f.asking.Wait()
	require.NoError(t, errors.Join(f.failed...), "%s: of %d", what, f.asked.Load())
}

// A member leaves under traffic, and its clients switch to the other member. HTTP clients
// switch when a response ends the connection or the dial fails. gRPC clients follow the
// health service, like Envoy.
func TestLeaveUnderTrafficFailsNoRequest(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	a := start(t, dir, "-name", "a", "-leave_within", "60s")
	b := start(t, dir, "-name", "b", "-join", a.addr(t))
	waitReady(t, a, b)

	var gone atomic.Bool // HTTP clients send to b, because a has ended a connection or refused a dial
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	defer client.CloseIdleConnections()
	overHTTP := func(ctx context.Context, key string, after time.Duration) error {
		for {
			var conn httptrace.GotConnInfo
			ctx := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(is httptrace.GotConnInfo) { conn = is }})
			begun := time.Now()
			p, first := a, !gone.Load()
			time.Sleep(after)
			if !first {
				p = b
			}
			r, err := p.newCheck(ctx, "/v1/take", `{"limit":"api/hourly","key":"`+key+`"}`)
			if err != nil {
				return err
			}
			r.GetBody = nil // so that the client does not send a request twice
			answer, err := client.Do(r)
			var refused *net.OpError
			if first && errors.As(err, &refused) && refused.Op == "dial" {
				gone.Store(true)
				continue
			}
			if err != nil && first {
				// The member closes connections that have been unused for a second. The
				// kernel also closes connections that the kernel has accepted and the
				// process has not.
				unused := max(conn.IdleTime, time.Since(begun)) > 800*time.Millisecond
				untaken := !conn.Reused && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE))
				if unused || untaken {
					continue
				}
			}
			if err != nil {
				return err
			}
			text, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			if answer.Close && first {
				gone.Store(true)
			}
			if err != nil || answer.StatusCode != http.StatusOK {
				return fmt.Errorf("%s: %s: %w", answer.Status, text, err)
			}
			return nil
		}
	}
	http1 := send(t, func(ctx context.Context, key string) error { return overHTTP(ctx, key, 0) })
	// These requests choose the member first and are sent 0.3 s later, when the member
	// may be leaving.
	slow := send(t, func(ctx context.Context, key string) error { return overHTTP(ctx, key, 300*time.Millisecond) })
	both := manual.NewBuilderWithScheme("both")
	both.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: a.addrs["envoy"]}, {Addr: b.addrs["envoy"]}}})
	conn, err := grpc.NewClient("both:///", grpc.WithResolvers(both), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}`), grpc.WithDisableRetry())
	require.NoError(t, err)
	defer conn.Close()
	envoy := send(t, func(ctx context.Context, key string) error {
		_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, envoyRequest(key), grpc.WaitForReady(true))
		return err
	})
	http1.awaitRequests(t, 100)
	slow.awaitRequests(t, 4)
	envoy.awaitRequests(t, 100)

	require.NoError(t, a.Process.Signal(syscall.SIGTERM))
	require.NoError(t, a.Wait(), "it exits with 0: %s", &a.out)
	http1.awaitRequests(t, 100)
	slow.awaitRequests(t, 4)
	envoy.awaitRequests(t, 100)
	http1.end(t, "HTTP")
	slow.end(t, "slow HTTP")
	envoy.end(t, "gRPC")
	require.True(t, gone.Load())
}
