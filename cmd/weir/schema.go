package main

import (
	"fmt"
	"io"

	"github.com/weir-go/weir/rules"
)

// schema prints the JSON Schema of rules files.
func schema(_ []string, stdout, stderr io.Writer) int {
	if _, err := stdout.Write(rules.Schema()); err != nil {
		fmt.Fprintln(stderr, err)
		return bad
	}
	return ok
}
