// Package grpclimit limits gRPC calls and the messages of streams, by rules or by a
// Limiter.
//
//	limits, err := grpclimit.New(node, book, grpclimit.Options{
//		Client: httplimit.RightmostUntrusted("X-Forwarded-For", netip.MustParsePrefix("10.0.0.0/8")),
//		APIKey: grpclimit.MetadataValue("x-api-key"),
//	})
//	...
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(limits.Unary()),
//		grpc.ChainStreamInterceptor(limits.Stream()),
//	)
//
// Rules match a call like its HTTP/2 request: a POST to the full method,
// /package.Service/Method, at the :authority, with the metadata as header. So a rules
// file can serve both HTTP and gRPC. Where rules count a request by its response, the status
// is the HTTP status that corresponds to the gRPC code.
//
// Concurrent calls are limited by rules with in_flight, or by ByLimiter with an InFlight
// limit. The actual cost of a call is read from its trailer, and with ByLimiter also from a
// message (Options.Settle, SettleTrailer).
//
// A denial of a limit is RESOURCE_EXHAUSTED with google.rpc.RetryInfo, whose delay clients
// wait for, and google.rpc.QuotaFailure, which names the limits. A call that costs more than its
// limit can ever grant has no RetryInfo, because a retry cannot succeed. A call of a blocked
// client or key is PERMISSION_DENIED, and a call with an ambiguous key INVALID_ARGUMENT. If
// a limit fails closed or the node is closed, the call is UNAVAILABLE with RetryInfo; if the
// limit is fail_open, the call proceeds. A call whose client is gone is CANCELLED. The header
// fields of httplimit are sent as header metadata.
//
// UnaryClient and StreamClient are interceptors for clients. They keep the calls of all replicas within the
// limits of other services (package outbound).
package grpclimit
