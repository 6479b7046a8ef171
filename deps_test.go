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
	".": {
		"internal/handover",
		"internal/holds",
		"internal/regions",
		"internal/asker",
		"internal/owner",
		"bucket",
		"cluster",
		"crypto/tls",
		"internal/attempt",
		"internal/calendar",
		"internal/env",
		"internal/epoch",
		"internal/identity",
		"internal/lines",
		"internal/conns",
		"internal/outage",
		"internal/parties",
		"internal/publish",
		"internal/registry",
		"internal/release",
		"internal/reserve",
		"internal/sealed",
		"internal/snapshots",
		"internal/spelling",
		"internal/stats",
		"internal/survey",
		"internal/view",
		"internal/wire",
		"ring",
		"snapshot",
		"sync",
		"time",
	},
	"bucket":  {"internal/spelling", "time"},
	"ring":    {},
	"sync":    {"bucket", "internal/clamp", "time"},
	"cluster": {"internal/clamp", "internal/conns", "internal/pace", "internal/patience", "internal/roundtrip", "net", "time", "crypto/tls", "github.com/hashicorp/memberlist"},

	"internal/attempt":    {"bucket", "cluster", "internal/env", "internal/patience", "internal/view", "internal/wire", "time"},
	"internal/adminapi":   {".", "time"},
	"internal/bounds":     {"."},
	"internal/calendar":   {"bucket", "time"},
	"internal/clamp":      {"time"},
	"internal/drawn":      {},
	"internal/handover":   {"bucket", "cluster", "internal/env", "internal/view", "internal/wire", "sync", "time"},
	"internal/holds":      {"bucket", "cluster", "internal/env", "internal/identity", "internal/sealed", "internal/view", "internal/wire", "sync", "time"},
	"internal/regions":    {"bucket", "cluster", "internal/env", "internal/pace", "internal/view", "internal/wire", "sync", "time"},
	"internal/asker":      {"bucket", "internal/env", "internal/view", "internal/wire", "sync", "time"},
	"internal/owner":      {"bucket", "internal/env", "internal/view", "internal/wire", "sync", "time"},
	"internal/env":        {"cluster", "internal/view", "internal/wire", "sync", "time"},
	"internal/framework":  {".", "httplimit", "rules", "net/http"},
	"internal/freeport":   {"net"},
	"internal/full":       {},
	"internal/identity":   {"bucket", "internal/wire"},
	"internal/jsonscan":   {},
	"internal/jsonschema": {"time"},
	"internal/lab":        {"time"},
	"internal/lines":      {"bucket", "internal/env", "internal/view", "internal/wire", "time"},
	"internal/metrics":    {".", "internal/release", "rules", "time"},
	"internal/release":    {},
	"internal/conns":      {"net"},
	"internal/outage":     {"time"},
	"internal/pace":       {"time"},
	"internal/patience":   {"time"},
	"internal/parties":    {"internal/view", "internal/wire"},
	"internal/httpread":   {},
	"internal/publish":    {"internal/clamp", "internal/env", "internal/pace", "internal/view", "internal/wire", "time"},
	"internal/race":       {},
	"internal/realtime":   {"internal/lab", "internal/wire", "time"},
	"internal/registry":   {"bucket", "internal/env", "internal/view", "internal/wire", "time"},
	"internal/reserve":    {"bucket", "internal/env", "internal/epoch", "internal/identity", "internal/sealed", "internal/wire", "time"},
	"internal/roundtrip":  {"time"},
	"internal/sealed":     {},
	"internal/epoch":      {"internal/env", "internal/view", "internal/wire", "time"},
	"internal/snapshots":  {"cluster", "internal/env", "internal/epoch", "internal/pace", "internal/sealed", "internal/view", "internal/wire", "snapshot", "sync", "time"},
	"internal/snippets":   {},
	"internal/spelling":   {"time"},
	"internal/stats":      {"bucket", "internal/wire", "time"},
	"internal/strictyaml": {"internal/spelling", "time"},
	"internal/survey":     {"bucket", "cluster", "internal/env", "internal/identity", "internal/stats", "internal/view", "internal/wire", "time"},
	"internal/view":       {"bucket", "cluster", "internal/wire", "ring", "sync", "time"},
	"internal/wire":       {"bucket", "internal/clamp", "time"},
	"internal/ratelimit":  {".", "time"},
	"cluster/clustertest": {"cluster", "time", "net"},
	"weirtest":            {".", "cluster", "sync", "internal/env", "internal/patience", "internal/roundtrip", "net", "time"},
	"audit":               {".", "time"},
	"rules":               {".", "internal/jsonscan", "internal/pace", "internal/httpread", "internal/spelling", "internal/ratelimit", "internal/strictyaml", "net/http", "time"},
	"httplimit":           {".", "rules", "internal/adminapi", "internal/jsonscan", "internal/release", "internal/pace", "internal/httpread", "internal/spelling", "internal/ratelimit", "internal/strictyaml", "net", "net/http", "time"},
	"page":                {".", "internal/adminapi", "internal/release", "rules", "net/http", "time"},
	"service":             {".", "internal/identity", "rules", "net/http", "time"},
	"snapshot":            {"time"},
	"examples/gateway":    {".", "httplimit", "rules", "service", "net/http", "time"},

	"examples/login":        {".", "httplimit", "rules", "service", "net/http", "time"},
	"examples/modelgateway": {".", "httplimit", "rules", "service", "net/http", "time"},
}

// guarded are the imports from outside that only those named above may have.
var guarded = []string{"net", "net/http", "time", "crypto/tls", "github.com/hashicorp/memberlist"}

// coreNeeds are the modules that the core's go.mod requires directly, and that whoever
// imports Weir so has in its own graph. What one program, or one kind of test, alone needs
// is in a module of its own; testsNeed are for tests, which see what is not exported.
var coreNeeds = []string{
	"github.com/cespare/xxhash/v2",
	"github.com/dchest/siphash",
	"github.com/fsnotify/fsnotify",
	"github.com/hashicorp/go-msgpack/v2",
	"github.com/hashicorp/memberlist",
	"go.yaml.in/yaml/v3",
	"golang.org/x/sync",
}

var testsNeed = []string{"github.com/stretchr/testify", "pgregory.net/rapid"}

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
	require.ElementsMatch(t, slices.Concat(coreNeeds, testsNeed), required(t, "."))
	imports := make(map[string]bool)
	for _, dir := range inPrograms(t) {
		pkg, err := build.ImportDir(filepath.FromSlash(dir), 0)
		require.NoError(t, err, dir)
		for _, path := range pkg.Imports {
			imports[path] = true
		}
	}
	for _, module := range testsNeed {
		for path := range imports {
			require.False(t, path == module || strings.HasPrefix(path, module+"/"), "%s is imported outside tests", path)
		}
	}
}

// required are the modules that the go.mod in a directory requires directly, but for
// this project's own.
func required(t *testing.T, dir string) (direct []string) {
	text, err := os.ReadFile(filepath.Join(filepath.FromSlash(dir), "go.mod"))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		module, _, is := strings.Cut(line, " v")
		module = strings.TrimSpace(module)
		if is && strings.HasPrefix(line, "\t") && !strings.Contains(line, "// indirect") && module != modulePath && !strings.HasPrefix(module, modulePath+"/") {
			direct = append(direct, module)
		}
	}
	return direct
}

// forTests is the package that tests alone import.
const forTests = "internal/drawn"

// inPrograms are the packages that a program may contain.
func inPrograms(t *testing.T) []string {
	return slices.DeleteFunc(packages(t), func(dir string) bool { return dir == forTests })
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

// Time is an argument of the pure floors: they name durations and instants, and read no
// clock.
func TestThePureFloorsReadNoClock(t *testing.T) {
	for _, dir := range []string{
		"bucket",
		"ring",
		"sync",
		"internal/attempt",
		"internal/outage",
		"internal/parties",
		"internal/registry",
		"internal/view",
		"internal/wire",
		"internal/stats",
	} {
		for call, at := range callsOf(t, dir, "time") {
			if !slices.Contains([]string{"Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour", "Time", "Unix"}, call) {
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
