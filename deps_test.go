package weir

import (
	"cmp"
	"errors"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// floors are the packages of this module from the lowest floor to the highest. A package may import
// packages of lower floors only.
var floors = [][]string{
	{ // packages without a notion of limits
		"cluster/detect", "internal/adapt", "internal/conns", "internal/httpread", "internal/loglimit",
		"internal/buildinfo", "internal/sealed", "internal/enum", "ring", "snapshot",
	},
	{"bucket", "cluster/gossip", "internal/strictyaml"},
	{"cluster"},
	{"internal/wire", "sync"},
	{"internal/identity", "internal/view"},
	{"internal/env"},
	{"internal/queue"},
	{ // the parts of a node
		"internal/asker", "internal/epoch", "internal/handover", "internal/holds",
		"internal/owner", "internal/limits", "internal/publish", "internal/regions", "internal/stats",
	},
	{"internal/check", "internal/reserve", "internal/snapshots"},
	{"."},
	{"audit", "internal/bounds", "internal/ratelimit", "weirtest"},
	{"rules"},
	{"audit/replay", "httplimit", "contrib/internal/metrics", "outbound", "service"},
	{"admin", "contrib/internal/framework"},
	{"examples/gateway", "examples/login", "examples/modelgateway", "page"},
}

// testTools are the floors above the product. Only tests, other test tools and toolPrograms import them.
var testTools = [][]string{
	{
		"cluster/clustertest", "cluster/gossip/gossiptest", "internal/lab", "internal/snippets", "internal/testenv",
	},
	{"internal/testnode"},
	{"contrib/internal/sourcetest"},
}

// toolPrograms are the directories, with all below them, of programs that test and measure Weir.
var toolPrograms = []string{"bench", "cmd/demo", "simulations"}

// reaches lists, for each package that gives access to the network, the packages that may import it.
var reaches = map[string][]string{
	"crypto/tls":                      {".", "cluster"},
	"github.com/hashicorp/memberlist": {"cluster/gossip"},
	"net":                             {"cluster", "cluster/gossip", "httplimit", "contrib/internal/sourcetest", "internal/conns", "internal/lab", "internal/testnode", "outbound", "weirtest"},
	"net/http": {
		"admin", "examples/gateway", "examples/login", "examples/modelgateway", "httplimit", "contrib/internal/framework", "internal/ratelimit", "outbound",
		"page", "rules", "service",
	},
}

// coreNeeds are the modules that the go.mod of the core requires directly, and that are
// therefore in the module graph of every user of Weir. Modules for a single program or kind of
// test are in the go.mod of another module. testsNeed are for tests that use unexported
// identifiers.
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

func TestPackagesImportOnlyLowerFloors(t *testing.T) {
	all := slices.Concat(floors, testTools)
	require.ElementsMatch(t, packages(t, false), slices.Concat(all...), "each package has one floor")
	lower := make(map[string]bool)
	for _, floor := range all {
		for _, dir := range floor {
			pkg, err := build.ImportDir(filepath.FromSlash(dir), 0)
			require.NoError(t, err, dir)
			for _, path := range pkg.Imports {
				name, ours := strings.CutPrefix(path, modulePath)
				name = cmp.Or(strings.TrimPrefix(name, "/"), ".")
				who, guarded := reaches[path]
				require.True(t, !ours || lower[name], "%s imports %s, which is on no lower floor", dir, path)
				require.True(t, !guarded || slices.Contains(who, dir), "%s imports %s: only %v may", dir, path, who)
			}
		}
		for _, dir := range floor {
			lower[dir] = true
		}
	}
}

// Packages of other modules have no floors.
func TestProductImportsNoTestTools(t *testing.T) {
	tools := slices.Concat(testTools...)
	for _, dir := range packages(t, true) {
		inTool := func(program string) bool { return dir == program || strings.HasPrefix(dir, program+"/") }
		if slices.Contains(tools, dir) || slices.ContainsFunc(toolPrograms, inTool) {
			continue
		}
		pkg, err := build.ImportDir(filepath.FromSlash(dir), 0)
		require.NoError(t, err, dir)
		for _, path := range pkg.Imports {
			require.NotContains(t, tools, strings.TrimPrefix(path, modulePath+"/"), "%s is a test tool, and %s imports it outside tests", path, dir)
		}
	}
}

func TestCoreRequiresFewModulesDirectly(t *testing.T) {
	require.ElementsMatch(t, slices.Concat(coreNeeds, testsNeed), required(t, "."))
	imports := make(map[string]bool)
	for _, dir := range slices.Concat(floors...) {
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

// required returns the modules that the go.mod in a directory requires directly, without those
// of this project.
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

// packages returns the directories that contain Go files other than tests. It includes the directories
// of other modules if allModules is set.
func packages(t *testing.T, allModules bool) (dirs []string) {
	err := filepath.WalkDir(".", func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if dir != "." {
			_, err := os.Stat(filepath.Join(dir, "go.mod"))
			if err == nil && !allModules || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" {
				return filepath.SkipDir // bench, for example, is a separate module
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

// The pure packages take the time as an argument. They use the types of package time, and read no clock.
func TestPurePackagesReadNoClock(t *testing.T) {
	for _, dir := range []string{
		"bucket", "cluster/detect", "ring", "sync", "internal/bounds", "internal/httpread", "internal/identity",
		"internal/limits", "internal/owner", "internal/loglimit", "internal/buildinfo",
		"internal/sealed", "internal/enum", "internal/stats", "internal/view", "internal/wire",
	} {
		for call, at := range callsOf(t, dir, "time") {
			if slices.Contains([]string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}, call) {
				t.Errorf("%s: time.%s: take the time as an argument", at, call)
			}
		}
	}
}

// callsOf returns the identifiers of an imported package that the files of a package use, with a
// position of each.
func callsOf(t *testing.T, dir, imported string) map[string]string {
	pkg, err := build.ImportDir(dir, 0)
	require.NoError(t, err)
	used := make(map[string]string)
	files := token.NewFileSet()
	for _, name := range pkg.GoFiles {
		file, err := parser.ParseFile(files, filepath.Join(dir, name), nil, 0)
		require.NoError(t, err)
		for _, i := range file.Imports {
			if i.Name != nil && i.Path.Value == strconv.Quote(imported) {
				t.Errorf("%s: package %s is %s here: import it under its own name, so that its calls are found", files.Position(i.Pos()), imported, i.Name.Name)
			}
		}
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
