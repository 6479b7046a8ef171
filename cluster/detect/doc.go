// Package detect decides which members the roster of a node has ([Roster]), which members the node
// watches, which are connected, and which have stalled ([Connectivity]). It is pure: events and the time are
// arguments, and each function returns the result of its step. Package cluster calls it for real
// connections, and package weirtest for simulated connections.
package detect
