package snippets_test

import (
	"encoding"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/snippets"
	"github.com/weir-go/weir/rules"
)

// filesOfFields has the rules file that completes a field which stands alone in a
// line, by the field; FIELD is where it stands.
func filesOfFields() map[string]string {
	files := make(map[string]string)
	for file, fields := range map[string]string{
		"FIELD\nrules: []": "enabled ipv6_prefix tiers exempt",
		"rules: [{name: a, key: ip, limit: {rate: 1, per: 1s}, FIELD}]":                          "match missing_key cost scope partition shadow soft count refund_on reserve settle",
		"rules: [{name: a, key: ip, limit: {rate: 1, per: 1s}, settle: {json: a, FIELD}}]":       "sse on_error trailer",
		"rules: [{name: a, key: ip, limit: {rate: 1, per: 1s}, settle: {sse: a, FIELD}}]":        "json",
		"rules: [{name: a, limit: {rate: 1, per: 1s}, FIELD}]":                                   "key",
		"rules: [{name: a, key: ip, limit: {algorithm: leaky_bucket, rate: 1, per: 1s}, FIELD}]": "queue",
		"rules: [{name: a, key: ip, limit: {rate: 1, per: 1s, FIELD}}]":                          "algorithm",
		"rules: [{name: a, key: ip, limit: {rate: 1, FIELD}}]":                                   "per calendar",
		"rules: [{name: a, key: ip, limit: {rate: 1, calendar: day, FIELD}}]":                    "zone",
	} {
		for name := range strings.FieldsSeq(fields) {
			files[name] = file
		}
	}
	return files
}

// Those of scenarios package simulations reads.
func TestEveryFieldOfRulesInALineIsRead(t *testing.T) {
	fields, err := snippets.Fields()
	require.NoError(t, err)
	files, read := filesOfFields(), 0
	for _, s := range fields {
		if s.File == "simulations/README.md" || s.Key() == "adversary" {
			continue
		}
		read++
		if file, ok := files[s.Key()]; !ok {
			t.Errorf("%s: `%s`: no rules file is known that completes it: add it to filesOfFields", s.At(), s.Text)
		} else if _, err := rules.Parse(s.At(), []byte(strings.Replace(file, "FIELD", s.Text, 1))); err != nil {
			t.Errorf("%s: `%s`: %v", s.At(), s.Text, err)
		}
	}
	require.NotZero(t, read)
}

// spelled adds the names of a type's values, by how they are read aloud.
func spelled[T interface {
	~uint8
	encoding.TextMarshaler
}](names map[string]string) {
	for value := T(0); ; value++ {
		name, err := value.MarshalText()
		if err != nil {
			return
		}
		names[aloud(string(name))] = string(name)
	}
}

// aloud is what two spellings of one name have in common.
func aloud(name string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "", " ", "").Replace(name))
}

// A constant of Go is written as it is in Go, and a scenario has a title.
func TestNoNameIsSpelledInAnotherWay(t *testing.T) {
	names := make(map[string]string)
	spelled[weir.Algorithm](names)
	spelled[weir.PartitionPolicy](names)
	spelled[weir.Scope](names)
	spelled[weir.Calendar](names)
	for s := weir.Owner; s.String() != weir.Source(255).String(); s++ {
		names[aloud(s.String())] = s.String()
	}
	root, err := snippets.Root()
	require.NoError(t, err)
	inline, err := snippets.Inline()
	require.NoError(t, err)
	for _, s := range inline {
		name, ok := names[aloud(s.Text)]
		constant := unicode.IsUpper(rune(s.Text[0])) && !strings.ContainsAny(s.Text, "-_ ")
		if !ok || s.Text == name || constant {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, "simulations", "scenarios", s.Text+".yaml")); err != nil {
			t.Errorf("%s: `%s`: write %s", s.At(), s.Text, name)
		}
	}
}

// A claim of a document is worth the test that it names.
func TestEveryTestThatADocumentNamesIsThere(t *testing.T) {
	root, err := snippets.Root()
	require.NoError(t, err)
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	there := make(map[string]bool)
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(text, -1) {
			there[string(m[1])] = true
		}
		return err
	}))
	code, err := snippets.Inline()
	require.NoError(t, err)
	name, named := regexp.MustCompile(`^(?:Test|Fuzz|Benchmark|Example)[A-Z]\w+$`), 0
	for _, s := range code {
		if name.MatchString(s.Text) {
			named++
			if !there[s.Text] {
				t.Errorf("%s: there is no test %s", s.At(), s.Text)
			}
		}
	}
	require.NotZero(t, named)
}
