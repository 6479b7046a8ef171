// Package conformance tests Weir with third-party libraries: the routers of frameworks,
// which read paths differently, a linearizability checker, a parser of structured fields,
// and nginx and Caddy. The tests of contrib/gin, contrib/echo and contrib/fiber are here,
// too: a table of promises, which each adapter keeps. The package is a separate module,
// so that users of Weir, or of an adapter, do not download the other libraries.
package conformance
