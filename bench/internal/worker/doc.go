// Package worker implements a process of the command bench: an instance of a contender,
// and callers that check the keys of a workload. The command and bench/gubernator import
// it, because gubernator is built as a separate module.
package worker
