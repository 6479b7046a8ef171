package strictyaml

import "go.yaml.in/yaml/v3"

// Unquoted is the value as if a text in quotes had none: JSON has no other way to
// write a duration or a percentage.
func (v Value) Unquoted() Value {
	if v.node == nil || v.node.Kind != yaml.ScalarNode || v.node.ShortTag() != "!!str" || v.node.Value == "" {
		return v
	}
	bare := *v.node
	bare.Style = 0
	v.node = &bare
	return v
}

// IsText reports whether it is a text: in quotes, or nothing else that YAML knows.
func (v Value) IsText() bool {
	return v.node != nil && v.node.Kind == yaml.ScalarNode && v.node.ShortTag() == "!!str"
}

// Position is where the value is, from 1; an absent one is where the map is that
// lacks it.
func (v Value) Position() (line, column int) { return v.at.Line, v.at.Column }

// At is an error at a place of a file, for what is found after the file was read.
func At(file string, line, column int, message string) *Error {
	return &Error{File: file, Line: line, Column: column, Message: message}
}
