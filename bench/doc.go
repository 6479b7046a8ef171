// Package bench compares Weir with what a user would pick instead, and with the
// limits of the machine. It is a module of its own, so that nobody who imports
// Weir has its rivals in go.sum. All of it is benchmarks: README.md says what
// each measures and how to run it.
package bench
