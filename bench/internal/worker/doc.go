// Package worker is what a process of the command bench does: it has one instance of a
// contender, and callers that ask it for the keys of a workload. The command and bench/gubernator
// import it, because gubernator is built as a module of its own.
package worker
