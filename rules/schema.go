package rules

import (
	_ "embed"
	"slices"
)

//go:embed schema.json
var schema []byte

// Schema is the JSON Schema (2020-12) of a file, by which editors complete it.
func Schema() []byte { return slices.Clone(schema) }
