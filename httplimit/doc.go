// Package httplimit limits requests of net/http by the rules of a rules.Book.
//
//	book, err := rules.Open(ctx, node, "rules.yaml", rules.BookOptions{})
//	limit, err := httplimit.New(node, book, httplimit.Options{
//		Client: httplimit.RightmostUntrusted("X-Forwarded-For", netip.MustParsePrefix("10.0.0.0/8")),
//		User:   func(r *http.Request) string { return session(r).User },
//	})
//	http.ListenAndServe(addr, limit.Handler(mux))
//
// ByLimiter uses a Limiter instead of rules:
//
//	limit, err := httplimit.ByLimiter(perUser, httplimit.Options{Key: httplimit.HeaderValue("X-User")})
//
// Most programs need five calls:
//
//   - [New] returns a [Middleware] with the rules of a Book, and [ByLimiter] a Middleware with a single
//     limit.
//   - [RightmostUntrusted] finds the address of the client behind proxies, as a value of
//     [Options].
//   - [Middleware.Handler] limits the requests of an http.Handler.
//   - [OutcomeOf] returns the decision to a handler, with Options.KeepOutcome.
//   - [Middleware.Check] decides on an event of a different protocol.
//
// [Middleware.Serve] and [Middleware.Begin] are for adapters of other frameworks. docs/http.md
// lists every header and body of the responses. Package admin is the HTTP API for operators,
// services in other languages and proxies.
package httplimit
