// Package ports bounds what clients can hold open on the ports that services ask.
//
// A connection works while a handler decides on its request. Otherwise it rests: it has
// sent no request, or half of one, or it does not read its answer, or it is kept open for
// the next request. Bounds are on connections that rest. Where a port is at its bound, the
// connection that has rested longest is closed, of the origin that has most of them there.
// A connection that works is never closed for another one.
//
// A connection is new until a request on it was answered with success. Each port has few
// places for new connections, so that those that were of use keep theirs.
//
// All ports share one Budget of file descriptors.
package ports
