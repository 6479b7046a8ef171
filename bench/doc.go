// Command bench measures limiters under the same workloads, and prints tables that
// compare Weir with alternatives. From the root of the project:
//
//	go run ./bench
//
// Each contender is measured in new processes. Contenders take turns, so that other load
// on the machine affects all of them. README.md explains the columns. The tests of the
// package contain a benchmark of busy gateways.
//
// The command is a separate module, so that go.sum of a module that imports Weir contains
// no alternatives.
package main
