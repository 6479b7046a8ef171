// Package detect decides which members a node is connected to, and which members have
// stalled. It is pure: events and the time are arguments, and each function returns the
// result of its step. Package cluster calls it for real connections, and package weirtest
// for simulated ones.
package detect
