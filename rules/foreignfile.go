package rules

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/internal/strictyaml"
)

// A rules file may be replaced by a link to any file that the process can read. The errors of
// the file are in the log and in the admin API. Therefore the errors of a file without the field
// rules must not reveal its content.

const maxGuesses = 1000 // maximum number of unknown fields whose meaning is guessed, because each guess takes 20 µs

// isForeign reports whether a file lacks the field rules, and adds an error for such a file,
// without its content. An unknown field whose name is close to a field of rules files is
// reported by name. If needsRules is false, a file of known fields may lack rules.
func isForeign(root strictyaml.Value, needsRules bool) bool {
	fields := root.Fields()
	if !root.IsMap() || slices.ContainsFunc(fields, func(e strictyaml.Entry) bool { return e.Field == "rules" }) {
		return false // the error of a file that is not a map has only its kind
	}
	unknown := 0
	for _, e := range fields {
		if slices.Contains(fileFields, e.Field) {
			continue
		}
		meant := ""
		if unknown < maxGuesses {
			meant = enum.Suggest(e.Field, fileFields)
		}
		if strings.HasPrefix(meant, "did you mean") {
			e.Key.Errorf("unknown field %q: %s", e.Field, meant)
		} else {
			unknown++
		}
	}
	switch {
	case unknown > 0:
		root.Errorf("rules is missing, and %d of the fields are unknown: is it a rules file? Its content is not shown", unknown)
	case needsRules:
		root.Errorf("rules is missing")
	}
	return true
}

// rulesField finds the field rules in a text that may not be YAML.
var rulesField = regexp.MustCompile(`(?m)(^|[\s{,])["']?rules["']?\s*:`)

// withoutContent returns the error of a text that is not valid YAML. An anchor, an alias or a
// tag is shown only if the text has the field rules.
func withoutContent(err error, text []byte) error {
	var told *strictyaml.Error
	if !errors.As(err, &told) || rulesField.Match(text) {
		return err
	}
	if !slices.ContainsFunc([]string{" anchor", " alias", "is a tag"}, func(part string) bool { return strings.Contains(told.Message, part) }) {
		return err // the error describes the grammar, and contains no part of the text
	}
	return &strictyaml.Error{File: told.File, Line: told.Line, Column: told.Column,
		Message: "anchors, aliases and tags are not read, and rules is missing: is it a rules file? Its content is not shown"}
}
