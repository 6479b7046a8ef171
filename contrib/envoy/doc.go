// Package envoylimit serves Envoy's rate limit service (v3) on a Weir cluster, without
// Redis. Envoy, Istio, Contour and Envoy Gateway use this service over gRPC.
//
//	cfg, err := envoylimit.Load("/etc/ratelimit")
//	...
//	service, err := envoylimit.New(node, cfg, envoylimit.Options{})
//	...
//	server := grpc.NewServer()
//	service.Register(server)
//	go service.Watch(ctx, "/etc/ratelimit", 0)
//	server.Serve(listener)
//
// The configuration consists of files in the format of envoyproxy/ratelimit, or comes over xDS
// (Follow). Unlike envoyproxy/ratelimit, a Service decides the descriptors of a request
// together: if one descriptor denies, no descriptor spends anything. The README lists the other
// differences, and shows how to configure Envoy.
//
// The server also serves Kuadrant's rate limit service, whose reservations replace an
// estimated cost by the actual cost. In a cluster with Secrets, any node can commit a
// reservation.
package envoylimit
