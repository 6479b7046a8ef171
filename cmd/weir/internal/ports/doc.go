// Package ports limits the number of connections that clients can keep open to the ports for
// services.
//
// A connection works while a handler decides on its request. Otherwise the connection rests: it has
// sent no request or an incomplete request, it does not read its response, it has only streaming
// gRPC requests, or it is kept open for the next request. If a port is at its bound, the port closes
// the longest resting connection of the origin with the most resting connections. A connection that
// works is never closed to make room. If all connections of a pool work, the next connection waits.
//
// A connection is new until a request on it has been answered with success. Each port has
// few places for new connections, so that proven connections keep their places.
//
// All ports share a Budget of file descriptors.
package ports
