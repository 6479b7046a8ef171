package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// slowest reads the events of go test -json, prints each package's result and the output of
// what failed, and then the slowest tests. It fails if a test did.
func slowest(_ context.Context, args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("slowest", flag.ContinueOnError)
	n := flags.Int("n", 20, "")
	if err := parse(flags, args); err != nil {
		return err
	}
	var tests []result
	skipped := 0
	failed := make(map[name]bool)
	err := results(in, "go test", func(r result) {
		if r.action == "fail" {
			failed[r.name] = true
			fmt.Fprint(out, r.output)
		}
		switch {
		case r.Test == "":
			fmt.Fprintf(out, "%-4s %8.1f s  %s\n", r.action, r.took.Seconds(), r.Package)
		case r.action == "skip":
			skipped++
		default:
			tests = append(tests, r)
		}
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(tests, func(a, b result) int { return cmp.Compare(b.took, a.took) })
	fmt.Fprintf(out, "\n%d tests ended, %d were skipped. The slowest:\n", len(tests), skipped)
	for _, r := range leaves(tests)[:min(*n, len(leaves(tests)))] {
		fmt.Fprintf(out, "%8.1f s  %v\n", r.took.Seconds(), r.name)
	}
	if len(failed) > 0 {
		return errFailed
	}
	return nil
}

// leaves leaves out each test that has subtests: it takes what they do.
func leaves(tests []result) (only []result) {
	parents := make(map[name]bool)
	for _, r := range tests {
		for at := strings.LastIndexByte(r.Test, '/'); at > 0; at = strings.LastIndexByte(r.Test[:at], '/') {
			parents[name{r.Package, r.Test[:at]}] = true
		}
	}
	for _, r := range tests {
		if !parents[r.name] {
			only = append(only, r)
		}
	}
	return only
}
