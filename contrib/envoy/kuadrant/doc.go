// Package kuadrant is the messages and the client of the rate limit service that Kuadrant's
// gateways ask. Package envoylimit serves it.
package kuadrant
