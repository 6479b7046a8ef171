package rules

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/internal/strictyaml"
)

// A rules file may be replaced by a link to any file that the process can read, and its
// errors are logged and told by the admin API. So the errors of a file that has no rules
// show nothing of its content.

// isForeign reports whether a file has no field rules, which it reports without what the
// file has instead. A field that is nearly one of a rules file is told all the same.
func isForeign(root strictyaml.Value) bool {
	fields := root.Fields()
	if !root.IsMap() || slices.ContainsFunc(fields, func(e strictyaml.Entry) bool { return e.Field == "rules" }) {
		return false // what is no map is told by its kind alone
	}
	unknown := 0
	for _, e := range fields {
		if slices.Contains(fileFields, e.Field) {
			continue
		}
		if meant := enum.Suggest(e.Field, fileFields); strings.HasPrefix(meant, "did you mean") {
			e.Key.Errorf("unknown field %q: %s", e.Field, meant)
		} else {
			unknown++
		}
	}
	if unknown > 0 {
		root.Errorf("rules is missing, and %d of the fields are unknown: is it a rules file? Its content is not shown", unknown)
	} else {
		root.Errorf("rules is missing")
	}
	return true
}

// rulesField finds the field rules in a text that may be no YAML.
var rulesField = regexp.MustCompile(`(?m)(^|[\s{,])["']?rules["']?\s*:`)

// withoutContent is an error of a text that is not read as YAML. An anchor, an alias and
// a tag are shown only if there are rules beside them.
func withoutContent(err error, text []byte) error {
	var told *strictyaml.Error
	if !errors.As(err, &told) || rulesField.Match(text) {
		return err
	}
	if !slices.ContainsFunc([]string{" anchor", " alias", "is a tag"}, func(part string) bool { return strings.Contains(told.Message, part) }) {
		return err // it says what the grammar wants, and nothing of the text
	}
	return &strictyaml.Error{File: told.File, Line: told.Line, Column: told.Column,
		Message: "anchors, aliases and tags are not read, and rules is missing: is it a rules file? Its content is not shown"}
}
