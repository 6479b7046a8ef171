package snippets_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A test that the default run skips names the tests of the default run that check the same promise.
func TestFullRunTestsReferToDefaultTests(t *testing.T) {
	declared := make(map[string]bool) // and whether the default run skips the whole test
	named := make(map[string][]string)
	test := regexp.MustCompile(`\bTest\w+`)
	walkFiles(t, "_test.go", func(name string, text []byte) {
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			f, is := d.(*ast.FuncDecl)
			if !is || f.Body == nil {
				continue
			}
			declared[f.Name.Name] = declared[f.Name.Name] || slices.ContainsFunc(f.Body.List, func(s ast.Stmt) bool {
				e, is := s.(*ast.ExprStmt)
				return is && strings.HasPrefix(string(text[e.Pos()-file.FileStart:]), "testenv.SkipUnlessFull(")
			})
			ast.Inspect(f, func(n ast.Node) bool {
				if call, is := n.(*ast.CallExpr); is {
					if code := string(text[call.Pos()-file.FileStart : call.End()-file.FileStart]); strings.HasPrefix(code, "testenv.SkipUnlessFull(") {
						named[name] = append(named[name], test.FindAllString(code, -1)...)
					}
				}
				return true
			})
		}
	})
	require.NotEmpty(t, named)
	for file, tests := range named {
		for _, name := range tests {
			skipped, is := declared[name]
			require.True(t, is, "%s: there is no %s", file, name)
			require.False(t, skipped, "%s: %s runs in the full run only: name a test of the default run", file, name)
		}
	}
}
