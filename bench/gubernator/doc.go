// Command gubernator is a node of github.com/gubernator-io/gubernator as a contender of the
// command in the folder above, which builds and starts it:
//
//	go run ./bench -only '/gubernator'
//
// It is a module of its own, and not in go.work, because gubernator needs a newer Go than Weir
// and a hundred modules. GOTOOLCHAIN=auto fetches that Go. Its tests show what a gubernator
// cluster does when a node dies or joins, as docs/comparison.md states it.
package main
