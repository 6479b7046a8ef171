// Package conformance holds Weir to what others' libraries make of it: a checker of
// linearizability, and a parser of structured fields. It is a module of its own, so that
// these are in nobody's go.sum who imports Weir.
package conformance
