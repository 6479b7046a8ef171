// Command bench runs limiters side by side on the same work, and prints a table: Weir
// beside what a user would pick instead. From the root of the project:
//
//	go run ./bench
//
// Each contender is measured in new processes. Contenders take turns, so that other load of the
// machine affects all of them. README.md has the meaning of the columns. The tests of the package
// have a benchmark of busy gateways.
//
// It is a module of its own, so that a module that imports Weir has no rivals in go.sum.
package main
