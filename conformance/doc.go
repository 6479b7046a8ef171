// Package conformance tests Weir with libraries of others: the routers of frameworks, which read
// paths differently, a checker of linearizability, a parser of structured fields, and nginx and
// Caddy. It also has the tests of contrib/gin, contrib/echo and contrib/fiber: one table of
// promises, which each of them keeps. It is a module of its own, so that users of Weir, or of one
// adapter, do not download the other libraries.
package conformance
