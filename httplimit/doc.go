// Package httplimit connects a node to net/http.
package httplimit
