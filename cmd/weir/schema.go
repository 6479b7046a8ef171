package main

import (
	"fmt"
	"io"

	"github.com/weir-go/weir/rules"
)

// schemaCommand prints the JSON Schema of rules files.
type schemaCommand struct{}

func (schemaCommand) run(stdout, stderr io.Writer) int {
	if _, err := stdout.Write(rules.Schema()); err != nil {
		fmt.Fprintln(stderr, err)
		return bad
	}
	return ok
}
