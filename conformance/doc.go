// Package conformance holds Weir to what others' libraries make of it: a checker of
// linearizability, a parser of structured fields, and the routers of frameworks, which read
// paths differently. It is a module of its own, so that these are in nobody's go.sum who
// imports Weir.
package conformance
