// Package countsync keeps the counts of several nodes in agreement: it is the
// stream of states, spends and authority between them, as step functions. What
// a node's store has spent goes in, frames for other members come out, and the
// frames that arrive are taken into the store.
package countsync
