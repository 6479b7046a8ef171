// Package strictyaml reads YAML files that people write by hand. The package is strict: anything
// that it does not understand is an error, which contains the line, the column and the
// probable intention.
//
// A caller requests the expected type of a Value, and gets the zero value if the field is
// absent. The File collects the errors, and File.Err returns them:
//
//	file, err := strictyaml.Parse("limits.yaml", text)
//	...
//	limit := file.Root().Map("name", "rate", "per")
//	name := limit.Get("name").Required().Text()
//	per := limit.Get("per").Duration(time.Millisecond, 24*time.Hour)
//	return file.Err()
//
// Anchors, aliases, tags and merge keys are errors, so each value is written where it
// applies, and a file cannot grow when it is read.
package strictyaml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The bounds of Parse.
const (
	MaxBytes = 1 << 20
	MaxDepth = 32
	maxTold  = 20   // maximum number of errors that a File keeps
	maxFound = 1000 // number of errors after which Read ends
)

// File is a file that is being read, with the errors found so far. A File is not safe for
// concurrent use.
type File struct {
	name  string
	root  *yaml.Node
	lines int    // number of lines
	parts []part // the files of a merged File, in their order; nil for the File of a text
	errs  []*Error
	found int  // number of errors, also those that are not in errs
	ends  bool // Read was called, and ends after maxFound errors
}

// Error is an error in a file.
type Error struct {
	File    string
	Line    int // from 1; 0 for an error about the whole file
	Column  int // from 1, in characters; 0 if only the line is known
	Message string

	line int // line as Value.Position counts it: over all files of a merged File
}

func (e *Error) Error() string {
	at := e.File
	if e.Line > 0 {
		at += ":" + strconv.Itoa(e.Line)
	}
	if e.Column > 0 {
		at += ":" + strconv.Itoa(e.Column)
	}
	return at + ": " + e.Message
}

// Parse reads a text with a single document. The name is used only in errors. The error is an
// *Error if the text is empty or is not YAML, or if any part of it is refused by this package:
// more than MaxBytes, nesting deeper than MaxDepth, a second document, anchors, aliases or
// tags.
func Parse(name string, text []byte) (*File, error) {
	whole := func(format string, args ...any) (*File, error) {
		return nil, &Error{File: name, Message: fmt.Sprintf(format, args...)}
	}
	if len(text) > MaxBytes {
		return whole("the file has %d bytes: at most %d are read", len(text), MaxBytes)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return whole("the file is empty")
	case err != nil:
		return nil, syntax(name, err)
	}
	f := &File{name: name, root: document.Content[0], lines: bytes.Count(text, []byte("\n")) + 1}
	if err := f.refuse(f.root, 1); err != nil {
		return nil, err
	}
	switch err := decoder.Decode(&second); {
	case err == nil:
		return nil, f.error(second.Content[0], "the file has a second document: write one document in each file")
	case !errors.Is(err, io.EOF):
		return nil, syntax(name, err)
	}
	return f, nil
}

// brokenGrammar lists the errors for which the library counts lines from 0.
var brokenGrammar = []string{
	"did not find expected <document start>", "did not find expected node content", "did not find expected key",
	"did not find expected '-' indicator", "did not find expected ',' or ']'", "did not find expected ',' or '}'",
}

// syntax converts an error of the library to an Error. The library writes the line number
// into the text, unless it is the first line.
func syntax(name string, err error) error {
	e := &Error{File: name, Line: 1}
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(message, "line "); ok {
		if line, problem, ok := strings.Cut(rest, ": "); ok {
			e.Line, _ = strconv.Atoi(line)
			message = problem
			if slices.Contains(brokenGrammar, problem) {
				e.Line++
			}
		}
	}
	e.Message = "not YAML: " + message
	return e
}

// refuse returns an error if n or any of its descendants is not allowed in any file.
func (f *File) refuse(n *yaml.Node, depth int) error {
	switch {
	case depth > MaxDepth:
		return f.error(n, "this value is nested more than %d deep: use fewer levels", MaxDepth)
	case n.Kind == yaml.AliasNode:
		return f.error(n, "*%s is an alias: write out what it stands for", n.Value)
	case n.Anchor != "":
		return f.error(n, "&%s is an anchor, and aliases are not read: remove it", n.Anchor)
	case n.Style&yaml.TaggedStyle != 0:
		return f.error(n, "%s is a tag, and tags are not read: remove it", n.Tag)
	}
	for _, c := range n.Content {
		if err := f.refuse(c, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// Root returns the whole document.
func (f *File) Root() Value { return Value{file: f, at: f.root, node: f.root} }

// Err returns the first maxTold errors that were found, in the order of the file: an *Error for
// each, joined, or nil if there is no error. A further *Error has the number of the other errors.
func (f *File) Err() error {
	slices.SortStableFunc(f.errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.Column, b.Column))
	})
	var errs []error
	for _, e := range f.errs {
		errs = append(errs, e)
	}
	if more := f.found - len(errs); more > 0 {
		text := "there are %d more errors"
		if f.found == maxFound {
			text = "there are at least %d more errors"
		}
		errs = append(errs, &Error{File: f.name, Message: fmt.Sprintf(text, more)})
	}
	return errors.Join(errs...)
}

// tooMany ends a call of Read.
type tooMany struct{}

// Read calls read with the whole document, and ends the call after many errors, so that a malformed file does not
// take long.
func (f *File) Read(read func(root Value)) {
	defer func() {
		if end := recover(); end != nil && end != any(tooMany{}) {
			panic(end)
		}
	}()
	f.ends = true
	read(f.Root())
}

// report records an error at a node.
func (f *File) report(n *yaml.Node, format string, args ...any) {
	if f.found++; f.found <= maxTold {
		f.errs = append(f.errs, f.error(n, format, args...))
	}
	if f.ends && f.found == maxFound {
		panic(tooMany{})
	}
}

func (f *File) error(n *yaml.Node, format string, args ...any) *Error {
	name, line := f.place(n.Line)
	return &Error{File: name, Line: line, Column: n.Column, Message: fmt.Sprintf(format, args...), line: n.Line}
}
