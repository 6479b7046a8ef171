// Package envoylimit is Envoy's rate limit service (v3) on a Weir cluster: what
// Envoy, Istio, Contour and Envoy Gateway ask over gRPC, without a Redis.
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
// The configuration has the format of envoyproxy/ratelimit, or comes over xDS (Follow).
// The descriptors of a
// request are decided together: if one denies, none of the others has spent anything.
// The README says what else differs, and how to have Envoy ask.
//
// The server also answers as Kuadrant's rate limit service, whose reservations replace the
// estimate of a cost by what it was. Any node of a cluster with Secrets commits them.
package envoylimit
