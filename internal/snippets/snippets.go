// Package snippets finds the code in the documents of the project, so that tests can check it with
// parsers, commands and compilers. Only tests use it:
//
//	go, rules in yaml, links, names of tests,
//	docs/logs.md                                   the tests of this package
//	scenarios in yaml, go run ./simulations        simulations
//	alerts in yaml, promql                         contrib/prometheus
//	descriptors in yaml                            contrib/envoy
//	weir                                           cmd/weir
//	go run ./bench, ./cmd/demo                     these commands
package snippets

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Snippet is a fenced block of a document.
type Snippet struct {
	File     string // slash-separated, from the root of the project
	Line     int    // line of the first line of Text in File, from 1
	Language string // language of the fence, or empty
	Text     string
}

// Position returns the position of the snippet, as "file:line".
func (s *Snippet) Position() string { return fmt.Sprintf("%s:%d", s.File, s.Line) }

// topKey matches a line that begins with a key of a YAML map.
var topKey = regexp.MustCompile(`(?m)^([\w$]+):`)

// Key returns the first key of a YAML map, by which the kind of a file
// is known: a scenario begins with "about", alerts with "groups".
func (s *Snippet) Key() string {
	if m := topKey.FindStringSubmatch(s.Text); m != nil {
		return m[1]
	}
	return ""
}

// Root returns the directory of the project, which contains go.work, for a working directory in the
// project.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for above := filepath.Dir(dir); ; dir, above = above, filepath.Dir(above) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if above == dir {
			return "", errors.New("snippets: no go.work above the working directory: run the tests in the project")
		}
	}
}

// document is a file with its lines.
type document struct {
	file  string
	lines []string
}

// documents reads every document of the project.
func documents() (all []document, err error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, path)
		all = append(all, document{filepath.ToSlash(file), strings.Split(string(text), "\n")})
		return err
	})
	return all, err
}

// All returns every snippet of every document of the project.
func All() ([]Snippet, error) { return collect((*document).snippets) }

// Inline returns the code spans of all documents.
func Inline() ([]Snippet, error) { return collect((*document).inline) }

// collect returns the snippets of all documents.
func collect(of func(*document) []Snippet) (all []Snippet, err error) {
	docs, err := documents()
	for i := range docs {
		all = append(all, of(&docs[i])...)
	}
	return all, err
}

// prose returns the lines of the document. The lines of snippets are empty.
func (d *document) prose() []string {
	lines := slices.Clone(d.lines)
	fenced := false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence || fenced {
			lines[i] = ""
		}
		fenced = fenced != fence
	}
	return lines
}

func (d *document) snippets() (all []Snippet) {
	var s *Snippet
	for i, line := range d.lines {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && s == nil:
			s = &Snippet{File: d.file, Line: i + 2, Language: strings.TrimSpace(fence)}
		case isFence:
			all = append(all, *s)
			s = nil
		case s != nil:
			s.Text += line + "\n"
		}
	}
	return all
}

// code matches a code span within a line.
var code = regexp.MustCompile("`([^`]+)`")

func (d *document) inline() (all []Snippet) {
	for i, line := range d.prose() {
		for _, m := range code.FindAllStringSubmatch(line, -1) {
			all = append(all, Snippet{File: d.file, Line: i + 1, Text: m[1]})
		}
	}
	return all
}
