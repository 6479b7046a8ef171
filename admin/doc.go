// Package admin is the HTTP API of a node for operators, for services in other languages, and for
// proxies.
//
//	api, err := admin.Handler(node, book, admin.Options{Tokens: [][]byte{token}})
//	http.Handle("/ready", admin.Readiness(node))
//
// Handler serves the whole API. CheckHandler serves only the endpoints that
// decide, under credentials of their own. Package httplimit limits the requests to a Go service.
// The endpoints for services and proxies use the Middleware of that package, or ask single limits.
//
// Readiness is here because probes and deploys call it, as operators call the API, and no Middleware
// needs it. OpenAPI is here because it describes this API only.
//
// Types such as Stats and Members are answers as JSON, for clients in Go. docs/admin.md has the
// endpoints.
package admin
