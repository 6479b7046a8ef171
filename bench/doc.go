// Command bench runs limiters side by side on the same work, and prints a table: Weir
// beside what a user would pick instead. From the root of the project:
//
//	go run ./bench
//
// Each contender is measured in processes of its own, which are new each time, one
// contender after the other and all of them again: so what else the machine does falls on
// all. The oracle's bounds are those of judge. README.md says what the workloads and
// columns are; the package's tests have benchmarks besides, of Weir beside the limits of
// the machine.
//
// It is a module of its own, so that nobody who imports Weir has its rivals in go.sum.
package main
