package main

import (
	"context"
	"errors"
	"net"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/service"
)

// hello is the limited procedure.
const hello = "/example.Greeter/Hello"

// serveConnect limits the handlers of Connect, which are handlers of net/http. A denial
// is in the protocol of the client: Connect, gRPC or gRPC-Web.
func serveConnect(perKey *weir.Limiter, l net.Listener) (service.Server, error) {
	errorsOf := connect.NewErrorWriter()
	limit, err := httplimit.ByLimiter(perKey, httplimit.Options{
		Key: httplimit.HeaderValue("X-Api-Key"),
		Denied: func(w http.ResponseWriter, r *http.Request, o *httplimit.Outcome) {
			code := connect.CodeResourceExhausted
			if o.Status == http.StatusServiceUnavailable {
				code = connect.CodeUnavailable
			}
			_ = errorsOf.Write(w, r, connect.NewError(code, errors.New(o.Problem().Detail)))
		},
	})
	if err != nil {
		return service.Server{}, err
	}
	mux := http.NewServeMux()
	mux.Handle(hello, connect.NewUnaryHandler(hello, func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[wrapperspb.StringValue], error) {
		return connect.NewResponse(wrapperspb.String("hello")), nil
	}))
	return serverOf(limit.Handler(mux), l), nil
}
