package strictyaml

import "go.yaml.in/yaml/v3"

// Unquoted returns the value without the quotes of a text, because JSON has no other form
// for a duration or a percentage.
func (v Value) Unquoted() Value {
	if v.node == nil || v.node.Kind != yaml.ScalarNode || v.node.ShortTag() != "!!str" || v.node.Value == "" {
		return v
	}
	bare := *v.node
	bare.Style = 0
	v.node = &bare
	return v
}

// IsText reports whether the value is a text: in quotes, or not of a different type of YAML.
func (v Value) IsText() bool {
	return v.node != nil && v.node.Kind == yaml.ScalarNode && v.node.ShortTag() == "!!str"
}

// Position returns the position of the value, from 1. The position of an absent value is
// that of the map in which it is missing. In a merged File, lines are counted over all files.
func (v Value) Position() (line, column int) { return v.at.Line, v.at.Column }

// NewError returns an error at a position of a file, for errors that are found after the file
// was read.
func NewError(file string, line, column int, message string) *Error {
	return &Error{File: file, Line: line, Column: column, Message: message}
}
