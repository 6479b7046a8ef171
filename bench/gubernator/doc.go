// Command gubernator runs a node of github.com/gubernator-io/gubernator as a contender of
// the command in the parent folder, which builds and starts it:
//
//	go run ./bench -only '/gubernator'
//
// The command is a separate module, and not in go.work, because gubernator needs a newer
// Go than Weir and a hundred modules. GOTOOLCHAIN=auto fetches that Go. The tests of the
// command show how a gubernator cluster behaves when a node dies or joins, as
// docs/comparison.md states.
package main
