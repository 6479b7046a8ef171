package weir

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/testenv"
)

// fuzzedElsewhere has the packages whose parsers are fuzzed through a target of a different package,
// as "directory Function".
var fuzzedElsewhere = map[string]string{
	"internal/handover": ". FuzzParseRanges",
	"internal/sealed":   "internal/reserve FuzzOpen",
	"internal/identity": ". FuzzParseSecrets",
	"internal/enum":     "rules FuzzParse",
	"internal/adapt":    "rules FuzzFactor",
}

// notFuzzed has the packages that need no fuzz target, with the reason.
var notFuzzed = map[string]string{
	"cluster/gossip/gossiptest": "decodes a value that it has encoded, for tests",
	"cmd/weir/internal/ports":   "hands on bytes that others read",
	"examples/modelgateway":     "encoding/json reads it",
	"weirtest":                  "hands on bytes that others read",
}

// ours are directories of programs and packages that are not part of the product. They read only data that
// they have written themselves, or that their user provides.
var ours = []string{"bench", "cmd/demo", "conformance", "deploy", "internal/lab", "internal/snippets"}

// readers matches functions of other modules that decode bytes or text from outside.
var readers = regexp.MustCompile(`^(Unmarshal\w*|NewDecoder\w*|DecodeString|ParseQuery|AppendCertsFromPEM)$`)

// inputs are the parameter types of functions that decode.
var inputs = map[string]bool{
	"[]byte": true, "[]string": true, "string": true, "io.Reader": true, "net.Conn": true, "*reader": true,
	"http.Header": true, "*http.Request": true, "*http.Response": true, "*rls.RateLimitRequest": true, "weir.Published": true,
}

// readsByName matches the names of functions that decode.
var readsByName = regexp.MustCompile(`^([pP]arse|[dD]ecode|[uU]nmarshal|[rR]ead)([A-Z]|$)`)

func TestPackagesWithParsersHaveAFuzzTarget(t *testing.T) {
	testenv.SkipOneGoroutine(t)
	t.Parallel()
	parsers, targets := parsersAndTargets(t)
	require.Greater(t, len(parsers), 20)
	for dir, function := range parsers {
		if targets[dir] == nil && fuzzedElsewhere[dir] == "" && notFuzzed[dir] == "" {
			t.Errorf("%s.%s reads what comes from outside: write a fuzz target there, or name one in fuzzedElsewhere, or in notFuzzed why it needs none", dir, function)
		}
	}
	for dir, target := range fuzzedElsewhere {
		of, name, _ := strings.Cut(target, " ")
		require.Contains(t, parsers, dir, "take it off fuzzedElsewhere")
		require.Contains(t, targets[of], name, "the target of %s is not there", dir)
	}
	for dir := range notFuzzed {
		require.Contains(t, parsers, dir, "take it off notFuzzed")
	}
}

// reads reports whether a function decodes bytes or text: by its name and its parameters, or by
// the functions that it calls.
func reads(f *ast.FuncDecl) (found bool) {
	if readsByName.MatchString(f.Name.Name) {
		for _, p := range f.Type.Params.List {
			found = found || inputs[types.ExprString(p.Type)]
		}
	}
	if f.Body == nil {
		return found
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if s, ok := call.Fun.(*ast.SelectorExpr); ok && readers.MatchString(s.Sel.Name) {
				found = true
			}
		}
		return !found
	})
	return found
}

// parsersAndTargets returns, by directory, a decoding function of each package of the product
// that has any, and the names of all fuzz targets.
func parsersAndTargets(t *testing.T) (parsers map[string]string, targets map[string][]string) {
	parsers, targets = make(map[string]string), make(map[string][]string)
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		dir := filepath.ToSlash(path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || slices.Contains(ours, dir)):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		test := strings.HasSuffix(path, "_test.go")
		text, err := os.ReadFile(path)
		if err != nil || test && !bytes.Contains(text, []byte("func Fuzz")) {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir = filepath.ToSlash(filepath.Dir(path))
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			switch name := f.Name.Name; {
			case test && strings.HasPrefix(name, "Fuzz"):
				targets[dir] = append(targets[dir], name)
			case !test && reads(f):
				parsers[dir] = name
			}
		}
		return nil
	}))
	return parsers, targets
}
