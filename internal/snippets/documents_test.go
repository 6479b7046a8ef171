package snippets_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/snippets"
)

// text is a document, by its path from the project's root.
type text struct {
	file string
	all  string
}

// texts returns all files with an ending that the project has committed or could commit.
func texts(t *testing.T, endings ...string) (found []text) {
	root, err := snippets.Root()
	require.NoError(t, err)
	require.NoError(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		for _, ending := range endings {
			if strings.HasSuffix(name, ending) {
				b, err := os.ReadFile(name)
				if err != nil {
					return err
				}
				file, err := filepath.Rel(root, name)
				found = append(found, text{filepath.ToSlash(file), string(b)})
				return err
			}
		}
		return nil
	}))
	require.NotEmpty(t, found)
	return found
}

// style is what ../../CONTRIBUTING.md asks of English, as far as a pattern can find it.
var style = []struct {
	name, instead string
	pattern       *regexp.Regexp
}{
	{"who as a subject", "name the node, member or caller", regexp.MustCompile(`(^|[.;:,] |\| |\()[Ww]ho(ever)? [a-z]+|\b([Oo]ne|[Tt]hose|[Tt]hat) who\b`)},
	{"a bool that is explained", "reports whether", regexp.MustCompile(`\bis\s+whether\b`)},
	{"says that", "reports whether, or states", regexp.MustCompile(`^[A-Za-z.]+ says (that|whether|of|since|which)\b`)},
	{"has X be done", "name the action", regexp.MustCompile(`\bhas (a|an|the|what|it|each|all|nothing|this|those|others) [a-z ]{0,24}\bbe\b`)},
}

// excepted are the sentences that a pattern finds and that are right, with the reason.
var excepted = map[string]string{}

func TestEnglishFollowsTheStyle(t *testing.T) {
	require.LessOrEqual(t, len(excepted), 20)
	used := make(map[string]bool)
	for _, d := range texts(t, ".md", ".go", ".yaml") {
		for i, line := range strings.Split(d.all, "\n") {
			said := spoken(d.file, line)
			for _, s := range style {
				found := s.pattern.FindString(said)
				if found == "" {
					continue
				}
				if at := d.file + ": " + strings.TrimSpace(said); excepted[at] != "" {
					used[at] = true
					continue
				}
				t.Errorf("%s:%d: %s: %q: %s", d.file, i+1, s.name, strings.TrimSpace(found), s.instead)
			}
		}
	}
	for at := range excepted {
		require.True(t, used[at], "nothing is found any more: take it out: %s", at)
	}
}

// spoken returns what a person reads of a line: a comment of code, and all of a document.
func spoken(file, line string) string {
	switch path.Ext(file) {
	case ".go":
		_, comment, ok := strings.Cut(line, "//")
		if !ok || strings.Contains(line, `"`) && strings.Index(line, `"`) < strings.Index(line, "//") {
			return ""
		}
		return strings.TrimSpace(comment)
	case ".yaml":
		_, comment, ok := strings.Cut(line, "# ")
		if !ok {
			return ""
		}
		return comment
	}
	return line
}

var (
	linked  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
)

// anchors returns the anchors of a document's headings, as GitHub makes them.
func anchors(all string) map[string]bool {
	found := make(map[string]bool)
	fenced := false
	for line := range strings.Lines(all) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		m := heading.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil || fenced {
			continue
		}
		var b strings.Builder
		for _, r := range strings.ToLower(m[1]) {
			switch {
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				b.WriteRune(r)
			case r == ' ':
				b.WriteByte('-')
			}
		}
		anchor := b.String()
		for n := 1; found[anchor]; n++ {
			anchor = fmt.Sprint(b.String(), "-", n)
		}
		found[anchor] = true
	}
	return found
}

func TestEveryLinkOfADocumentLeadsSomewhere(t *testing.T) {
	root, err := snippets.Root()
	require.NoError(t, err)
	for _, d := range texts(t, ".md") {
		for i, line := range strings.Split(d.all, "\n") {
			for _, m := range linked.FindAllStringSubmatch(line, -1) {
				to, anchor, _ := strings.Cut(m[1], "#")
				if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
					continue
				}
				target := d.file
				if to != "" {
					target = path.Join(path.Dir(d.file), to)
				}
				name := filepath.Join(root, filepath.FromSlash(target))
				if _, err := os.Stat(name); err != nil {
					t.Errorf("%s:%d: %s: there is no such file", d.file, i+1, m[1])
					continue
				}
				if anchor == "" || path.Ext(target) != ".md" {
					continue
				}
				b, err := os.ReadFile(name)
				require.NoError(t, err)
				if !anchors(string(b))[anchor] {
					t.Errorf("%s:%d: %s: there is no such heading", d.file, i+1, m[1])
				}
			}
		}
	}
}
