package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"
)

// event is a line of go test -json, as cmd/test2json documents it.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64 // seconds
	Output  string
}

// name identifies a test, or with Test "" the package as a whole.
type name struct{ Package, Test string }

func (n name) String() string {
	if n.Test == "" {
		return n.Package
	}
	return n.Package + " " + n.Test
}

// result is how one test, or one package, ended.
type result struct {
	name
	action string // pass, fail or skip
	took   time.Duration
	output string
}

// maxOutput bounds the bytes that are kept of a test's output: its end, where the failure is.
const maxOutput = 256 << 10

// results reads the events of one run and calls ended for each test and package when it
// ends. A test that never ends, as its process panicked or timed out, ends as failed when
// its package does. Lines that are no events, such as those of a failed build, are of the
// package that other, the name of the run, stands for.
func results(r io.Reader, other string, ended func(result)) error {
	open := make(map[name]*bytes.Buffer)
	keep := func(n name, text string) {
		b := open[n]
		if b == nil {
			b = new(bytes.Buffer)
			open[n] = b
		}
		b.WriteString(text)
		if b.Len() > maxOutput {
			b.Next(b.Len() - maxOutput/2)
		}
	}
	finish := func(n name, action string, took time.Duration) {
		b := open[n]
		delete(open, n)
		output := ""
		if b != nil {
			output = b.String()
		}
		ended(result{n, action, took, output})
	}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) != nil || e.Action == "" {
			if len(line) > 0 {
				keep(name{other, ""}, string(line))
			}
		} else {
			n := name{e.Package, e.Test}
			switch e.Action {
			case "run", "start":
				keep(n, "")
			case "output", "build-output":
				keep(n, e.Output)
			case "pass", "fail", "skip":
				if e.Test == "" {
					for _, lost := range unfinished(open, e.Package) {
						finish(lost, "fail", 0)
					}
				}
				finish(n, e.Action, time.Duration(e.Elapsed*float64(time.Second)))
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// unfinished returns the tests of a package that are open, subtests before their parents.
func unfinished(open map[name]*bytes.Buffer, path string) (lost []name) {
	for n := range open {
		if n.Package == path && n.Test != "" {
			lost = append(lost, n)
		}
	}
	slices.SortFunc(lost, func(a, b name) int { return strings.Compare(b.Test, a.Test) })
	return lost
}

// innermost reports whether no failed test is a subtest of n: a parent fails with its
// subtest, and says nothing more.
func innermost(n name, failed map[name]bool) bool {
	for other := range failed {
		if other.Package == n.Package && other.Test != n.Test && (n.Test == "" || strings.HasPrefix(other.Test, n.Test+"/")) {
			return false
		}
	}
	return true
}
