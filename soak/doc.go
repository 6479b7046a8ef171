// Command soak runs a cluster of real processes under traffic for a long time, plays
// faults on it, and says at the end whether anything has grown that should not, and
// whether a promise was broken:
//
//	go run ./soak           # 10 minutes
//	go run ./soak -for 1m
//
// The way of a run: a process for each node (node.go) asks all the time, as a service
// that embeds Weir does (traffic.go), and reports what was admitted. The first process
// rotates the secret, then plays one fault after the other (faults.go), and between two
// of them has the traffic rest and takes the figures of each process (figures.go). At
// the end growth.go judges the figures and promises.go the admissions; either can fail
// the run. The exit status is 1 then.
package main
