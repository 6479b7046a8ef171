package snippets_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/snippets"
)

// notLogged are the directories whose log lines are not in docs/logs.md: tools and examples.
var notLogged = regexp.MustCompile(`^(bench|cluster/clustertest|cmd/demo|conformance|deploy|examples|internal/lab|simulations|weirtest)/`)

// levels are the methods of slog.Logger that log, and their names in docs/logs.md.
var levels = map[string]string{"Debug": "debug", "Info": "info", "Warn": "warn", "Error": "error"}

// plainFields are the fields that the document does not list for each line.
var plainFields = []string{"error", "addr", "member", "path", "retry", "limit", "version", "client", "id", "unlogged"}

func TestDocumentListsAllLogLines(t *testing.T) {
	documented := make(map[string][]string) // fields, by level and message
	root, err := snippets.Root()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs", "logs.md"))
	require.NoError(t, err)
	code := regexp.MustCompile("`(\\w+)`")
	entry := regexp.MustCompile("(?m)^- (debug|info|warn|error) (`[^`]+`(?:, `[^`]+`)*)(?: \\(([^)]*)\\))?")
	for _, row := range entry.FindAllStringSubmatch(string(text), -1) {
		fields := []string{}
		for _, f := range code.FindAllStringSubmatch(row[3], -1) {
			fields = append(fields, f[1])
		}
		for message := range strings.SplitSeq(strings.Trim(row[2], "`"), "`, `") {
			documented[row[1]+" "+message] = fields
		}
	}

	logged := make(map[string]string) // messages, by level and head
	walkFiles(t, ".go", func(name string, text []byte) {
		if strings.HasSuffix(name, "_test.go") || notLogged.MatchString(path.Dir(name)+"/") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is || len(call.Args) == 0 {
				return true
			}
			method, is := call.Fun.(*ast.SelectorExpr)
			message := literal(call.Args[0])
			if !is || levels[method.Sel.Name] == "" || message == "" {
				return true
			}
			line := levels[method.Sel.Name] + " " + head(message)
			if other, is := logged[line]; is {
				require.Equal(t, other, message, "%s: two messages begin alike", name)
			}
			logged[line] = message
			for i := 1; i < len(call.Args); i += 2 {
				if field := literal(call.Args[i]); field != "" && !slices.Contains(plainFields, field) && documented[line] != nil {
					require.Contains(t, documented[line], field, "%s logs %q", name, message)
				}
			}
			return true
		})
	})
	require.Equal(t, slices.Sorted(maps.Keys(documented)), slices.Sorted(maps.Keys(logged)), "code and docs/logs.md have other lines")
}

// head returns the beginning of a message, which identifies it in docs/logs.md. The rest of the
// message states the effect or the remedy.
func head(message string) string {
	if end := strings.IndexAny(message, ",:;"); end >= 0 {
		return message[:end]
	}
	return message
}

// literal returns the value of a string literal, and "" for any other expression.
func literal(e ast.Expr) string {
	if l, is := e.(*ast.BasicLit); is && l.Kind == token.STRING {
		text, _ := strconv.Unquote(l.Value)
		return text
	}
	return ""
}
