package snippets_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/snippets"
)

// walkFiles calls do for each file of the project with the suffix, with its slash-separated path from
// the root of the project. It leaves out testdata and hidden folders.
func walkFiles(t *testing.T, suffix string, do func(name string, text []byte)) {
	root, err := snippets.Root()
	require.NoError(t, err)
	require.NoError(t, filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, suffix):
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		do(filepath.ToSlash(name), text)
		return err
	}))
}

var (
	linked  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fence   = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```")
	heading = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
)

// anchors returns the anchors of the headings of a document, in the form of GitHub.
func anchors(text string) map[string]bool {
	found := make(map[string]bool)
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return r
			case r == ' ':
				return '-'
			}
			return -1
		}, strings.ToLower(m[1]))
		unique := anchor
		for n := 1; found[unique]; n++ {
			unique = fmt.Sprint(anchor, "-", n)
		}
		found[unique] = true
	}
	return found
}

func TestLinksLeadToFilesAndHeadings(t *testing.T) {
	documents := make(map[string]string)
	walkFiles(t, ".md", func(name string, text []byte) { documents[name] = string(text) })
	root, err := snippets.Root()
	require.NoError(t, err)
	for name, text := range documents {
		for _, m := range linked.FindAllStringSubmatch(text, -1) {
			to, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			target := name
			if to != "" {
				target = path.Join(path.Dir(name), to)
			}
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(target))); err != nil {
				t.Errorf("%s: %s: there is no such file", name, m[1])
			} else if document, is := documents[target]; is && anchor != "" && !anchors(document)[anchor] {
				t.Errorf("%s: %s: there is no such heading", name, m[1])
			}
		}
	}
}

// Each test that a document names, in a code span or by -run or -bench of a command, exists.
func TestTestsInDocumentsExist(t *testing.T) {
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	exists := make(map[string]bool)
	walkFiles(t, "_test.go", func(_ string, text []byte) {
		for _, m := range declared.FindAllSubmatch(text, -1) {
			exists[string(m[1])] = true
		}
	})
	commands, err := snippets.CallsOf("go", "test")
	require.NoError(t, err)
	for _, c := range commands {
		for i, pattern := range c.Words {
			if i > 0 && (c.Words[i-1] == "-run" || c.Words[i-1] == "-bench") && pattern != "^$" && pattern != "." {
				named := slices.ContainsFunc(slices.Collect(maps.Keys(exists)), regexp.MustCompile(pattern).MatchString)
				require.True(t, named, "%s: no test matches %s", c.Position(), pattern)
			}
		}
	}
	code, err := snippets.Inline()
	require.NoError(t, err)
	name, named := regexp.MustCompile(`^(?:Test|Fuzz|Benchmark|Example)[A-Z]\w+$`), 0
	for _, s := range code {
		if name.MatchString(s.Text) {
			named++
			if !exists[s.Text] {
				t.Errorf("%s: there is no test %s", s.Position(), s.Text)
			}
		}
	}
	require.NotZero(t, named)
}
