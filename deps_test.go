package weir

import (
	"errors"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mayImport is a statement of policy: which packages of this module, and which
// packages that reach the world outside, each package may import. What is not
// named here may import neither.
var mayImport = map[string][]string{
	".":       {"bucket", "cluster", "ring", "sync", "internal/observe", "internal/spelling", "crypto/tls", "time"},
	"bucket":  {"internal/spelling", "time"},
	"ring":    {},
	"sync":    {"bucket", "time"},
	"cluster": {"internal/patience", "internal/roundtrip", "net", "time", "crypto/tls", "github.com/hashicorp/memberlist"},

	"internal/observe":    {},
	"internal/patience":   {"time"},
	"internal/roundtrip":  {"time"},
	"internal/snippets":   {},
	"internal/spelling":   {"time"},
	"internal/strictyaml": {"internal/spelling", "time"},
	"internal/ratelimit":  {".", "time"},
	"cluster/clustertest": {"cluster", "time", "net"},
	"weirtest":            {".", "cluster", "internal/observe", "internal/patience", "internal/roundtrip", "net", "time"},
	"rules":               {".", "internal/spelling", "internal/ratelimit", "internal/strictyaml", "net/http", "time"},
	"cmd/weir":            {"internal/spelling", "rules", "net/http"},
	"httplimit":           {".", "rules", "internal/spelling", "internal/ratelimit", "internal/strictyaml", "net/http", "time"},
	"examples/gateway":    {".", "httplimit", "rules", "net/http", "time"},
}

// guarded are the imports from outside that only those named above may have.
var guarded = []string{"net", "net/http", "time", "crypto/tls", "github.com/hashicorp/memberlist"}

// coreNeeds are the modules that the core's go.mod requires directly, and that whoever
// imports Weir so has in its own graph. What one program alone needs is in a module of
// that program's; porcupine, rapid and testify are for tests.
var coreNeeds = []string{
	"github.com/anishathalye/porcupine",
	"github.com/cespare/xxhash/v2",
	"github.com/dchest/siphash",
	"github.com/dunglas/httpsfv",
	"github.com/fsnotify/fsnotify",
	"github.com/hashicorp/go-msgpack/v2",
	"github.com/hashicorp/go-sockaddr",
	"github.com/hashicorp/memberlist",
	"github.com/stretchr/testify",
	"go.yaml.in/yaml/v3",
	"golang.org/x/sync",
	"pgregory.net/rapid",
}

const modulePath = "github.com/weir-go/weir"

func TestPackagesImportOnlyWhatTheirFloorMay(t *testing.T) {
	dirs := packages(t)
	for dir := range mayImport {
		require.Contains(t, dirs, dir, "a floor is named that is not there")
	}
	for _, dir := range dirs {
		allowed := mayImport[dir]
		pkg, err := build.ImportDir(filepath.FromSlash(dir), 0)
		require.NoError(t, err, dir)
		for _, path := range pkg.Imports {
			name, ours := strings.CutPrefix(path, modulePath)
			name = strings.TrimPrefix(name, "/")
			if name == "" {
				name = "."
			}
			switch {
			case ours && !slices.Contains(allowed, name):
				t.Errorf("%s imports %s: its floor may import only %v", dir, name, allowed)
			case !ours && slices.Contains(guarded, path) && !slices.Contains(allowed, path):
				t.Errorf("%s imports %s: its floor may import only %v", dir, path, allowed)
			}
		}
	}
}

func TestTheCoreRequiresFewModulesDirectly(t *testing.T) {
	text, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	var direct []string
	for line := range strings.Lines(string(text)) {
		if module, _, required := strings.Cut(line, " v"); required && strings.HasPrefix(line, "\t") && !strings.Contains(line, "// indirect") {
			direct = append(direct, strings.TrimSpace(module))
		}
	}
	require.ElementsMatch(t, coreNeeds, direct)
}

// packages finds the directories of this module that have Go code outside tests.
func packages(t *testing.T) (dirs []string) {
	err := filepath.WalkDir(".", func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if dir != "." {
			_, err := os.Stat(filepath.Join(dir, "go.mod"))
			if err == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" {
				return filepath.SkipDir // bench, for one, is a module of its own
			}
		}
		pkg, err := build.ImportDir(dir, 0)
		switch {
		case errors.As(err, new(*build.NoGoError)):
			return nil
		case err == nil && len(pkg.GoFiles) > 0:
			dirs = append(dirs, filepath.ToSlash(dir))
		}
		return err
	})
	require.NoError(t, err)
	return dirs
}

// Time is an argument of the pure floors: they name durations and read no clock.
func TestThePureFloorsReadNoClock(t *testing.T) {
	for _, dir := range []string{"bucket", "ring"} {
		for call, at := range callsOf(t, dir, "time") {
			if !slices.Contains([]string{"Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour"}, call) {
				t.Errorf("%s: time.%s: take the time as an argument", at, call)
			}
		}
	}
}

// callsOf finds what a package's files use of an imported package, and where.
func callsOf(t *testing.T, dir, imported string) map[string]string {
	pkg, err := build.ImportDir(dir, 0)
	require.NoError(t, err)
	used := make(map[string]string)
	files := token.NewFileSet()
	for _, name := range pkg.GoFiles {
		file, err := parser.ParseFile(files, filepath.Join(dir, name), nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == imported {
					used[s.Sel.Name] = files.Position(s.Pos()).String()
				}
			}
			return true
		})
	}
	return used
}
