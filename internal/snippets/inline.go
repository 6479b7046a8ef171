package snippets

import "regexp"

// code is what stands in a line as code.
var code = regexp.MustCompile("`([^`]+)`")

// Inline returns the code that stands within the lines of every document.
func Inline() (all []Snippet, err error) {
	docs, err := documents()
	for _, d := range docs {
		all = append(all, d.inline()...)
	}
	return all, err
}

func (d *document) inline() (all []Snippet) {
	for i, line := range d.prose() {
		for _, m := range code.FindAllStringSubmatch(line, -1) {
			all = append(all, Snippet{File: d.file, Line: i + 1, Text: m[1]})
		}
	}
	return all
}
