package grpclimit

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/outbound"
)

// UnaryClient returns an interceptor that sends each call once the call has its turn at the Gate. The Gate
// receives the HTTP/2 request of the call: a POST to the full method at the host of the target, with the outgoing
// metadata as header. It does not receive credentials of the connection (grpc.WithPerRPCCredentials), so name the
// account with outbound.Options.Credential.
//
// If a call ends with RESOURCE_EXHAUSTED or UNAVAILABLE, and its error has google.rpc.RetryInfo, or its metadata
// has grpc-retry-pushback-ms, retry-after or ratelimit, the calls of this key stop on all replicas for that time. A
// call that is not sent ends with DEADLINE_EXCEEDED, CANCELLED, RESOURCE_EXHAUSTED if too many calls wait, or
// UNAVAILABLE if the node is closed. The interceptor sends no call again. If a service config makes the client
// retry a call, the retry does not wait for a turn.
func UnaryClient(gate *outbound.Gate) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, response any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		turn, err := gate.Wait(outgoing(ctx, conn.CanonicalTarget(), method))
		switch {
		case err != nil:
			return statusOfWait(err)
		case turn == nil:
			return invoke(ctx, method, request, response, conn, opts...)
		}
		var header, trailer metadata.MD
		opts = append(slices.Clip(opts), grpc.Header(&header), grpc.Trailer(&trailer))
		if err = invoke(ctx, method, request, response, conn, opts...); err != nil {
			pauseBy(ctx, turn, err, header, trailer)
		}
		return err
	}
}

// StreamClient returns an interceptor like that of UnaryClient, for streams. A stream waits for one turn, and its
// messages do not wait.
func StreamClient(gate *outbound.Gate) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		turn, err := gate.Wait(outgoing(ctx, conn.CanonicalTarget(), method))
		if err != nil {
			return nil, statusOfWait(err)
		}
		stream, err := open(ctx, desc, conn, method, opts...)
		if err != nil || turn == nil {
			return stream, err
		}
		return &outboundStream{stream, turn}, nil
	}
}

// outboundStream is a stream that pauses its key if the stream ends with a refusal.
type outboundStream struct {
	grpc.ClientStream
	turn *outbound.Turn
}

func (s *outboundStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if code := status.Code(err); code == codes.ResourceExhausted || code == codes.Unavailable {
		header, _ := s.Header()
		pauseBy(s.Context(), s.turn, err, header, s.Trailer())
	}
	return err
}

// outgoing returns the HTTP/2 request of a call to a target "scheme://authority/endpoint".
func outgoing(ctx context.Context, target, method string) *http.Request {
	_, endpoint, _ := strings.Cut(target, "://")
	_, endpoint, _ = strings.Cut(endpoint, "/")
	md, _ := metadata.FromOutgoingContext(ctx)
	r := &http.Request{Method: http.MethodPost, URL: &url.URL{Scheme: "https", Host: endpoint, Path: method}, Host: endpoint, Header: headerOf(md)}
	return r.WithContext(ctx)
}

// pauseBy pauses the key of a refused call for the time in its error or its metadata.
func pauseBy(ctx context.Context, turn *outbound.Turn, err error, header, trailer metadata.MD) {
	s := status.Convert(err)
	if s.Code() != codes.ResourceExhausted && s.Code() != codes.Unavailable {
		return
	}
	for _, detail := range s.Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok {
			turn.Pause(ctx, retry.GetRetryDelay().AsDuration())
			return
		}
	}
	md := metadata.Join(header, trailer)
	if pushback := md.Get("grpc-retry-pushback-ms"); len(pushback) > 0 {
		if ms, err := strconv.ParseInt(pushback[0], 10, 32); err == nil { // a negative number forbids retries, and pauses nothing
			turn.Pause(ctx, time.Duration(ms)*time.Millisecond)
			return
		}
	}
	turn.PauseBy(ctx, headerOf(md))
}

// statusOfWait returns the status of a call whose wait for a turn failed with err.
func statusOfWait(err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case errors.Is(err, weir.ErrFull):
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return status.Error(codes.Unavailable, err.Error())
}
