package ports

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/internal/lab"
)

// checker is a health server that delays each call of Check.
type checker struct {
	*health.Server
	takes time.Duration
}

func (c checker) Check(ctx context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	select {
	case <-time.After(c.takes):
	case <-ctx.Done():
	}
	return c.Server.Check(ctx, r)
}

func serveRPC(t *testing.T, takes time.Duration) (*lab.PipeListener, *Port) {
	l := lab.ListenPipe()
	p := NewBudget(1024, quiet).Clients(l, "test")
	server := p.NewRPC(insecure.NewCredentials(), func(s *grpc.Server) {
		healthpb.RegisterHealthServer(s, checker{health.NewServer(), takes})
	})
	go server.Serve(p)
	t.Cleanup(server.Stop)
	return l, p
}

// client returns a client of the server of serveRPC.
func client(t *testing.T, l *lab.PipeListener) healthpb.HealthClient {
	conn, err := grpc.NewClient("passthrough:test", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
		return l.Dial(func(there net.Conn) net.Conn { return lab.FromIP(there, "192.0.2.1") }), nil
	}))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return healthpb.NewHealthClient(conn)
}

// preface is the beginning of an HTTP/2 connection of a client, with empty settings.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// ping is a frame to which the server responds.
const ping = "\x00\x00\x08\x06\x00\x00\x00\x00\x00pingpong"

// header returns a frame that begins a request to the health service.
func header(stream uint32, method string) string {
	path := "/grpc.health.v1.Health/" + method
	block := "\x83\x86\x01\x04weir\x04" + string([]byte{byte(len(path))}) + path + "\x0f\x10\x10application/grpc\x00\x02te\x08trailers"
	frame := []byte{0, 0, byte(len(block)), 1, 4}
	return string(binary.BigEndian.AppendUint32(frame, stream)) + block
}

func TestStalledGRPCConnectionsEndInTime(t *testing.T) {
	for _, c := range []struct {
		name, first string
		within      time.Duration
		read        bool
	}{
		{"silent", "", openWithin, true},
		{"half a preface", preface[:9], openWithin, true},
		{"that answer no ping", preface, pingAfter + pingWithin, true},
		{"that do not read", preface, openWithin + rpcWriteWithin, false},
		{"that read nothing after the first", preface + ping + ping, rpcWriteWithin, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, p := serveRPC(t, 0)
				conn := dial(t, l, "192.0.2.1", c.first)
				if c.read {
					go io.Copy(io.Discard, conn)
				} else if strings.Contains(c.first, ping) {
					go io.CopyN(io.Discard, conn, 40) // the settings
				}
				synctest.Wait()
				require.Equal(t, 1, opened(p))
				time.Sleep(c.within + time.Second)
				require.Zero(t, opened(p))
			})
		})
	}
}

func TestIdleGRPCConnectionIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := serveRPC(t, 0)
		of := client(t, l)
		check := func() {
			_, err := of.Check(t.Context(), &healthpb.HealthCheckRequest{})
			require.NoError(t, err)
			require.Equal(t, 1, opened(p))
			require.Equal(t, 1, keeps(p), "it was of use")
		}
		check()
		time.Sleep(rpcIdleWithin - time.Second)
		check()
		time.Sleep(rpcIdleWithin + 10*time.Second)
		require.Zero(t, opened(p))
		check()
	})
}

func TestIncompleteGRPCRequestEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := serveRPC(t, 0)
		conn := dial(t, l, "192.0.2.1", preface+header(1, "Check")+header(3, "None"))
		go io.Copy(io.Discard, conn)
		synctest.Wait()
		require.EqualValues(t, 1, p.rpcs.half.Load(), "a method that is not there is answered at once")
		time.Sleep(callWithin - time.Second)
		require.EqualValues(t, 1, p.rpcs.half.Load())
		p.pool.mu.Lock()
		require.NotNil(t, stalled(p.budget.age(), p.fresh))
		p.pool.mu.Unlock()
		time.Sleep(2 * time.Second)
		require.Zero(t, p.rpcs.half.Load())
	})
}

func TestGRPCConnectionWorksDuringDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := serveRPC(t, time.Second)
		of := client(t, l)
		answered := make(chan error)
		go func() {
			_, err := of.Check(t.Context(), &healthpb.HealthCheckRequest{})
			answered <- err
		}()
		time.Sleep(500 * time.Millisecond)
		require.Zero(t, p.rpcs.half.Load())
		p.pool.mu.Lock()
		require.Nil(t, stalled(p.budget.age(), p.fresh))
		p.pool.mu.Unlock()
		require.NoError(t, <-answered)
	})
}

func TestIncompleteGRPCRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := serveRPC(t, 0)
		honest := client(t, l)
		for range maxHalfRead/callsAtOnce + 4 {
			first := preface
			for i := range callsAtOnce {
				first += header(uint32(2*i+1), "Check")
			}
			go io.Copy(io.Discard, dial(t, l, "192.0.2.1", first))
			synctest.Wait()
			require.LessOrEqual(t, p.rpcs.half.Load(), int64(maxHalfRead))
			_, err := honest.Check(t.Context(), &healthpb.HealthCheckRequest{})
			require.NoError(t, err)
		}
		require.Equal(t, 1, keeps(p), "the honest one stays")
		require.LessOrEqual(t, opened(p), maxHalfRead/callsAtOnce+1)
	})
}

func TestStreamsOfAConnectionAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := serveRPC(t, 0)
		of := client(t, l)
		ctx, leave := context.WithCancel(t.Context())
		for range streamsEach {
			s, err := of.Watch(ctx, &healthpb.HealthCheckRequest{})
			require.NoError(t, err)
			_, err = s.Recv()
			require.NoError(t, err)
		}
		s, err := of.Watch(ctx, &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		_, err = s.Recv()
		require.Equal(t, codes.ResourceExhausted, status.Code(err), err)

		_, err = of.Check(ctx, &healthpb.HealthCheckRequest{})
		require.NoError(t, err, "other requests pass")
		time.Sleep(2 * rpcIdleWithin)
		require.EqualValues(t, streamsEach, p.rpcs.streams.Load(), "a stream has no end of its own")
		leave()
		synctest.Wait()
		require.Zero(t, p.rpcs.streams.Load())
	})
}
