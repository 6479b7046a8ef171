// Package admin is the HTTP API of a node for operators, for services in other languages, and
// for proxies.
//
//	api, err := admin.Handler(node, book, admin.Options{Tokens: [][]byte{token}})
//	http.Handle("/ready", admin.Readiness(node))
//
// Most programs need four calls. [Handler] serves the whole API. [CheckHandler] serves only the
// endpoints that decide, with separate credentials. [Readiness] answers the probes of a deploy.
// [OpenAPI] describes the API.
//
// Package httplimit limits the requests to a Go service. The endpoints for services and proxies
// use the Middleware of that package, or ask single limits. Readiness is in package admin
// because probes and deploys call it, as operators call the API, and no Middleware needs it.
//
// Types such as Stats and Members are answers as JSON, for clients in Go. docs/admin.md lists
// the endpoints.
package admin
