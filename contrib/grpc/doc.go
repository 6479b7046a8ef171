// Package grpclimit limits gRPC calls and the messages of streams, by rules or by
// one limit.
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
// A call is a POST to its full method, /package.Service/Method, at its :authority,
// with its metadata as header: as HTTP/2 carries it. So one rules file serves both
// HTTP and gRPC.
//
// Calls that run at once are limited by rules with in_flight, or by ByLimiter with an InFlight
// limit. Costs are settled by the trailer, and with ByLimiter also by a message
// (Options.Settle, SettleTrailer). Rules count a call by the HTTP status of its code.
//
// A denial is RESOURCE_EXHAUSTED with google.rpc.RetryInfo, which clients wait for,
// and google.rpc.QuotaFailure, which names the limits; a call that costs more than
// its limit can ever grant has no RetryInfo, for it is not to be tried again. Where
// a limit fails closed, and where the node is closed, it is UNAVAILABLE with
// RetryInfo; where the limit is fail_open the call goes on. A call whose client is gone is
// CANCELLED. What httplimit tells in header fields comes as header metadata.
package grpclimit
