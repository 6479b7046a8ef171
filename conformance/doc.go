// Package conformance tests Weir with third-party libraries: the routers of frameworks,
// which read paths differently, a linearizability checker, a parser of structured fields,
// and nginx and Caddy. It also contains the tests of contrib/gin, contrib/echo and
// contrib/fiber: one table of promises, which each adapter keeps. It is a separate
// module, so that users of Weir, or of one adapter, do not download the other libraries.
package conformance
