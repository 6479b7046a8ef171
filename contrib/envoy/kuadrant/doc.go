// Package kuadrant contains the messages and the client of the rate limit service that
// Kuadrant's gateways use. Package envoylimit implements the service.
package kuadrant
