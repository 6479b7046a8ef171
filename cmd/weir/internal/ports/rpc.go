package ports

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// Bounds of a gRPC server.
const (
	openWithin      = 5 * time.Second  // timeout of the TLS and HTTP/2 handshakes
	callWithin      = 10 * time.Second // timeout of a request and its response, except for streams
	rpcWriteWithin  = 10 * time.Second // timeout of a write
	rpcIdleWithin   = 5 * time.Minute  // maximum time without a request; long, because a client that has to reconnect may miss a deadline of milliseconds
	pingAfter       = time.Minute      // time without a frame after which the client is pinged
	pingWithin      = 20 * time.Second // timeout of the response to a ping
	pingsFromOthers = 10 * time.Second // minimum interval between two pings of a client
	callsAtOnce     = 256              // maximum number of requests at a time on a connection; clients open further connections for more
	streamsEach     = 4                // maximum number of streams on a connection: Watch of the health service, reflection
	maxStreams      = 2048             // maximum number of streams of a port
	maxHalfRead     = 4096             // maximum number of half-read requests of a port; each takes about 10 KiB of memory and the bytes that were read
	rpcReadBuffer   = 8 << 10          // bytes for each connection, instead of 32 KiB
	callWindow      = 64 << 10         // bytes of a request that may arrive before it is read
)

// rpcs counts the half-read requests and the streams of a gRPC server.
type rpcs struct {
	streaming map[string]bool // the set of streaming methods, with the full name as the key
	half      atomic.Int64
	streams   atomic.Int64
}

// NewRPC returns a gRPC server for the connections of p, with the services of register.
func (p *Port) NewRPC(secured credentials.TransportCredentials, register func(*grpc.Server)) *grpc.Server {
	server := grpc.NewServer(
		grpc.Creds(secured),
		grpc.ConnectionTimeout(openWithin),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: rpcIdleWithin, Time: pingAfter, Timeout: pingWithin}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingsFromOthers, PermitWithoutStream: true}),
		grpc.MaxConcurrentStreams(callsAtOnce),
		grpc.MaxHeaderListSize(maxHeader),
		grpc.StaticStreamWindowSize(callWindow),
		grpc.ReadBufferSize(rpcReadBuffer),
		grpc.InTapHandle(p.tap), grpc.ChainUnaryInterceptor(p.unary), grpc.ChainStreamInterceptor(p.stream),
	)
	register(server)
	p.writeWithin = rpcWriteWithin
	p.rpcs.streaming = make(map[string]bool)
	for name, service := range server.GetServiceInfo() {
		for _, m := range service.Methods {
			if m.IsClientStream || m.IsServerStream {
				p.rpcs.streaming["/"+name+"/"+m.Name] = true
			}
		}
	}
	return server
}

// connIn returns the connection of a request, or nil if it arrived on a different listener.
func connIn(ctx context.Context) *conn {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	a, _ := from.Addr.(address)
	return a.conn
}

type callKey struct{}

// call is a request whose header has arrived.
type call struct {
	conn   *conn
	whole  atomic.Bool // the request has been read, or has ended
	stop   func() bool
	cancel context.CancelFunc
}

// ended records that the request has been read, or has ended before that.
func (k *call) ended() {
	if !k.whole.Swap(true) {
		k.conn.half.Add(-1)
		k.conn.port.rpcs.half.Add(-1)
	}
}

// tap is called for the header of each request, before other work on the request.
func (p *Port) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	c := connIn(ctx)
	if c == nil || p.rpcs.streaming[info.FullMethodName] {
		return ctx, nil
	}
	k := &call{conn: c, cancel: func() {}}
	if by, has := ctx.Deadline(); !has || time.Until(by) > callWithin {
		ctx, k.cancel = context.WithTimeout(ctx, callWithin) // gRPC stops reading a request when its context is done
	}
	c.half.Add(1)
	if p.rpcs.half.Add(1) > maxHalfRead {
		p.cut(p.pool.shedHalf(p))
	}
	k.stop = context.AfterFunc(ctx, k.ended)
	return context.WithValue(ctx, callKey{}, k), nil
}

func (p *Port) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	k, _ := ctx.Value(callKey{}).(*call)
	if k == nil {
		return handle(ctx, req)
	}
	k.stop()
	k.ended()
	defer k.cancel()
	k.conn.begin(false)
	defer k.conn.end()
	answer, err := handle(ctx, req)
	if err == nil {
		k.conn.prove()
	}
	return answer, err
}

func (p *Port) stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	c := connIn(stream.Context())
	if c == nil {
		return handle(srv, stream)
	}
	defer c.streams.Add(-1)
	defer p.rpcs.streams.Add(-1)
	each, all := c.streams.Add(1), p.rpcs.streams.Add(1)
	if each > streamsEach {
		return status.Errorf(codes.ResourceExhausted, "this connection already has the maximum of %d streams: end one", streamsEach)
	}
	if all > maxStreams {
		return status.Errorf(codes.ResourceExhausted, "the maximum of %d streams is open: try again later", maxStreams)
	}
	return handle(srv, stream)
}

// shedHalf drops the connection of a port with the most requests that are not fully read.
// It drops no connection if the connections of the port in the pool have at most maxHalfRead such requests.
// Then rpcs.half is higher only because requests of dropped connections have not ended yet.
func (p *pool) shedHalf(port *Port) []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	var worst *conn
	sum, most := 0, int32(0)
	for _, s := range []set{port.fresh, port.kept} {
		for _, c := range s {
			half := c.half.Load()
			sum += int(half)
			if half > most {
				worst, most = c, half
			}
		}
	}
	if sum <= maxHalfRead {
		return nil
	}
	return p.drop(nil, worst)
}
