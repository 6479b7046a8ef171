package main

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/service"
)

const replicas = 3

// A replica is a service with a server of each framework.
type replica struct {
	*service.Service
	addrs map[string]string // keyed by framework
}

// startReplicas starts replicas that have met, each with every framework. At the end of the
// test, the replica that was started last ends first.
func startReplicas(t *testing.T) (started [replicas]replica) {
	var join []string
	for i := range started {
		s, err := service.Start(t.Context(), service.Options{Node: weir.Config{Bind: "127.0.0.1:0", Join: join, Timeout: 10 * time.Second}})
		require.NoError(t, err)
		self := s.Node.Members()[0].Addr
		join = append(join, self)
		started[i] = replica{s, make(map[string]string)}
		var servers []service.Server
		for _, name := range slices.Sorted(maps.Keys(frameworks)) {
			perKey, err := s.Node.Limiter(weir.Limit{Name: name, Algorithm: weir.FixedWindow, Rate: 60, Per: time.Hour, NoLeases: true})
			require.NoError(t, err)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			server, err := frameworks[name](perKey, l)
			require.NoError(t, err)
			started[i].addrs[name] = l.Addr().String()
			servers = append(servers, server)
		}
		ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(ctx, servers...) }()
		t.Cleanup(func() { // one after the other, as in a deployment
			end()
			require.NoError(t, <-ended)
		})
	}
	for _, r := range started {
		require.Eventually(t, func() bool { return len(r.Node.Members()) == replicas && r.Node.Ready() }, time.Minute, 5*time.Millisecond)
	}
	return started
}

// ask sends a request to a service, and reports whether it was admitted. It returns an
// error for any response other than success and the denial of its framework.
type ask func(ctx context.Context, key string) (admitted bool, err error)

func asker(t *testing.T, framework, addr string) ask {
	// An open, unused connection would delay the end of its server.
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	t.Cleanup(transport.CloseIdleConnections)
	web := &http.Client{Transport: transport}
	switch framework {
	case "grpc":
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		client := grpc_health_v1.NewHealthClient(conn)
		return func(ctx context.Context, key string) (bool, error) {
			_, err := client.Check(metadata.AppendToOutgoingContext(ctx, "x-api-key", key), new(grpc_health_v1.HealthCheckRequest))
			if status.Code(err) == codes.ResourceExhausted {
				return false, nil
			}
			return err == nil, err
		}
	case "connect":
		client := connect.NewClient[emptypb.Empty, wrapperspb.StringValue](web, "http://"+addr+hello)
		return func(ctx context.Context, key string) (bool, error) {
			r := connect.NewRequest(new(emptypb.Empty))
			r.Header().Set("X-Api-Key", key)
			_, err := client.CallUnary(ctx, r)
			if connect.CodeOf(err) == connect.CodeResourceExhausted {
				return false, nil
			}
			return err == nil, err
		}
	}
	return func(ctx context.Context, key string) (bool, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/", nil)
		if err != nil {
			return false, err
		}
		r.Header.Set("X-Api-Key", key)
		answer, err := web.Do(r)
		if err != nil {
			return false, err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		switch {
		case err != nil:
			return false, err
		case answer.StatusCode == http.StatusOK && string(text) == "hello\n":
			return true, nil
		case answer.StatusCode == http.StatusTooManyRequests && answer.Header.Get("Retry-After") != "" && answer.Header.Get("RateLimit") != "" && len(text) > 0:
			return false, nil
		}
		return false, &net.AddrError{Err: answer.Status, Addr: string(text)}
	}
}

// Of 120 concurrent requests to three replicas, exactly 60 are admitted. Another key has
// a separate count.
func TestReplicasOfFrameworkAdmitExactlyLimit(t *testing.T) {
	started := startReplicas(t)
	for _, framework := range slices.Sorted(maps.Keys(frameworks)) {
		t.Run(framework, func(t *testing.T) {
			var admitted, other atomic.Int64
			var asking errgroup.Group
			for _, r := range started {
				ask := asker(t, framework, r.addrs[framework])
				for range 8 {
					asking.Go(func() error {
						for range 5 {
							yes, err := ask(t.Context(), "ada")
							if err != nil {
								return err
							}
							if yes {
								admitted.Add(1)
							}
						}
						yes, err := ask(t.Context(), "bob")
						if yes {
							other.Add(1)
						}
						return err
					})
				}
			}
			require.NoError(t, asking.Wait())
			require.EqualValues(t, 60, admitted.Load())
			require.EqualValues(t, replicas*8, other.Load())
		})
	}
}

func TestUnknownFrameworkIsRefused(t *testing.T) {
	require.ErrorContains(t, run(t.Context(), service.Options{}, "rails", "127.0.0.1:0"), `-framework is "rails": use one of [chi connect`)
}

// The command serves until its context ends, and then ends without an error.
func TestRunServesUntilItsContextEnds(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	addr, ended := lab.FreeAddr(t), make(chan error, 1)
	go func() { ended <- run(ctx, service.Options{}, "chi", addr) }()
	ask := asker(t, "chi", addr)
	require.Eventually(t, func() bool {
		admitted, err := ask(ctx, "ada")
		return admitted && err == nil
	}, time.Minute, 5*time.Millisecond)
	end()
	require.NoError(t, <-ended)
}
