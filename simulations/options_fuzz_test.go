package main

import (
	"io"
	"strings"
	"testing"
)

// Whatever the command line says, it is read or refused.
func FuzzOptions(f *testing.F) {
	f.Add("-n 3 -seed 7 -regions")
	f.Add("clean-split -svg x.svg -random 1s")
	f.Add("-h -n -1")
	f.Fuzz(func(t *testing.T, line string) {
		o, err := parseArgs(strings.Fields(line), io.Discard)
		if err == nil && o.count < 0 {
			t.Errorf("%q is read as %d scenarios", line, o.count)
		}
	})
}
