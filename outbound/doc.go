// Package outbound limits the requests that all replicas of a service send to other services.
//
//	gate, err := outbound.New(node, outbound.Options{Limits: []outbound.Limit{{
//		Host:  "api.example.com", // this service grants 100 requests per second
//		Limit: weir.Limit{Name: "example", Algorithm: weir.LeakyBucket, Rate: 99, Per: time.Second, Burst: 500},
//	}}})
//	client := &http.Client{Transport: gate.Transport(nil)}
//
// A request waits for its turn under a key of the host and the credential. The turns of a LeakyBucket are
// in order of arrival over all replicas. If the other service answers 429 or 503 with Retry-After or
// RateLimit, the requests of this key stop on all replicas for that time. Requests to hosts without a Limit do
// not wait.
//
// Rate must be about 1 % lower than the limit of the other service. If the network delays a request, it arrives
// together with later requests, and all of them spend from the burst that the other service permits. At the
// lower Rate, the other service grants this burst again after a while. Burst is the number of requests that may
// wait. A request for which there is no room, or whose deadline is before its turn, fails at once with
// ErrDelayed.
//
// Package grpclimit has interceptors for gRPC. docs/outbound.md has the details.
package outbound
