// Package httplimit limits requests of net/http by the rules of a rules.Book.
//
//	book, err := rules.Open(ctx, node, "rules.yaml", rules.BookOptions{})
//	limit, err := httplimit.New(node, book, httplimit.Options{
//		Client: httplimit.RightmostUntrusted("X-Forwarded-For", netip.MustParsePrefix("10.0.0.0/8")),
//		User:   func(r *http.Request) string { return session(r).User },
//	})
//	http.ListenAndServe(addr, limit.Handler(mux))
//
// ByLimiter limits by one Limiter, without rules:
//
//	limit, err := httplimit.ByLimiter(perUser, httplimit.Options{Key: httplimit.HeaderValue("X-User")})
//
// docs/http.md has every header and body of its responses. Package admin is the HTTP API for operators,
// services in other languages and proxies.
package httplimit
