package rules

import (
	_ "embed"
	"slices"
)

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema (2020-12) of a file, which editors use for completion.
func Schema() []byte { return slices.Clone(schema) }
