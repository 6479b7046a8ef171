package main

import (
	"io"

	"github.com/weir-go/weir/rules"
)

// schemaCommand prints the JSON Schema of rules files.
type schemaCommand struct{}

func (schemaCommand) run(stdout, _ io.Writer) (int, error) {
	_, err := stdout.Write(rules.Schema())
	return ok, err
}
