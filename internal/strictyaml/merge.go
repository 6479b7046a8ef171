package strictyaml

import (
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// part is a file of a merged File. Lines of its nodes are counted over all files.
type part struct {
	name   string
	before int // number of lines in the earlier files
}

// Merge returns a File with the fields of all files, each of which has a map. The fields in joined may be
// in several files: their lists are joined, and equal texts count as one. For a different field in
// several files, Entries reports an error, as for a field that a file sets twice. The files must have no
// errors, and must not be used any more.
func Merge(name string, files []*File, joined ...string) *File {
	root := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: 1, Column: 1}
	merged := &File{name: name, root: root}
	at := make(map[string]int) // index in root.Content of the value, by the name of a joined field
	lines := 0
	for _, f := range files {
		merged.parts = append(merged.parts, part{f.name, lines})
		shift(f.root, lines)
		lines += f.lines
		for i := 0; i+1 < len(f.root.Content); i += 2 {
			key, value := f.root.Content[i], f.root.Content[i+1]
			if first, there := at[key.Value]; there {
				root.Content[first] = join(root.Content[first], value)
				continue
			}
			root.Content = append(root.Content, key, value)
			if slices.Contains(joined, key.Value) {
				at[key.Value] = len(root.Content) - 1
			}
		}
	}
	return merged
}

// join returns a list with the values of two fields, or the first value if both are the same text.
func join(first, second *yaml.Node) *yaml.Node {
	if first.Kind == yaml.ScalarNode && second.Kind == yaml.ScalarNode && first.Value == second.Value {
		return first
	}
	list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: first.Line, Column: first.Column}
	for _, n := range []*yaml.Node{first, second} {
		if n.Kind == yaml.SequenceNode {
			list.Content = append(list.Content, n.Content...)
		} else {
			list.Content = append(list.Content, n)
		}
	}
	return list
}

// shift adds lines to the line number of n, and to those of all nodes in n.
func shift(n *yaml.Node, lines int) {
	n.Line += lines
	for _, c := range n.Content {
		shift(c, lines)
	}
}

// place returns the name of the file of a line, and the line in that file.
func (f *File) place(line int) (name string, in int) {
	name, in = f.name, line
	for _, p := range f.parts {
		if p.before < line {
			name, in = p.name, line-p.before
		}
	}
	return name, in
}

// Line describes a line that Position returned, such as "line 3", and for a merged File "line 3 of a.yaml".
func (v Value) Line(line int) string {
	name, in := v.file.place(line)
	text := "line " + strconv.Itoa(in)
	if v.file.parts != nil {
		text += " of " + name
	}
	return text
}

// ErrorAt returns an error at the value, for errors that are found after the file was read.
func (v Value) ErrorAt(message string) *Error { return v.file.error(v.at, "%s", message) }
