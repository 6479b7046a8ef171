// Command bench runs limiters side by side on the same work, and prints a table that
// compares Weir with alternatives. From the root of the project:
//
//	go run ./bench
//
// Each contender is measured in new processes. Contenders take turns, so that other load
// on the machine affects all of them. README.md explains the columns. The tests of the
// package contain a benchmark of busy gateways.
//
// It is a separate module, so that a module that imports Weir has no alternatives in
// go.sum.
package main
