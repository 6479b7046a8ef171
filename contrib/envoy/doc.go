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
// # Kuadrant
//
// The server also serves Kuadrant's rate limit service, whose reservations replace an
// estimated cost by the actual cost. A Reserve of 0 only asks whether a unit is left. An amount
// above a limit is OVER_LIMIT.
//
// Any node of a cluster with Secrets accepts the Commit of a reservation, with the same
// descriptors, while the window of a limit lasts, for at least a minute and at most an hour.
// After that, a Commit settles only the limits whose time has not ended. If none is left, or the
// reservation is already settled, the Commit returns FAILED_PRECONDITION. For a forged ID, or the
// ID of another key, it returns INVALID_ARGUMENT. Neither error changes a count. UNAVAILABLE is
// safe to retry. A Commit debits the amount of a limit in shadow mode that had no room.
//
// Without a Commit, the node of a reservation returns the amount 1 to 2 s after the ttl, if the
// ttl is below an hour. A node does so for at most 16,384 reservations at once. Other amounts, and
// the amounts of a node that has ended, stay spent until the windows end. After the return of the
// amount, a Commit debits its amount, even if it is repeated.
package envoylimit
