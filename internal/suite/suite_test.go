package main

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/full"
)

func TestASlowMachineHasMoreTime(t *testing.T) {
	for _, c := range []struct {
		took          time.Duration
		before, after time.Duration
		within        bool
	}{
		{100 * time.Second, reference, reference, true},
		{101 * time.Second, reference, reference, false},
		{199 * time.Second, reference, 2 * reference, true},
		{201 * time.Second, 2 * reference, reference, false},
		{101 * time.Second, reference / 2, reference / 2, false}, // a fast machine has no less, but no more
		{99 * time.Second, reference / 2, reference / 2, true},
	} {
		said, within := verdict(c.took, 100*time.Second, c.before, c.after)
		require.Equal(t, c.within, within, said)
	}
}

func TestLimitFailsWithItsCommand(t *testing.T) {
	steady := func(context.Context) time.Duration { return reference }
	var out strings.Builder
	goes := []string{"go", "env", "GOOS"}
	require.NoError(t, limited(t.Context(), time.Minute, steady, goes, &out))
	require.Contains(t, out.String(), "go env GOOS: ")
	require.Error(t, limited(t.Context(), time.Minute, steady, []string{"go", "no-such-command"}, &out))
	require.ErrorIs(t, limited(t.Context(), time.Microsecond, steady, goes, &out), errSlow)
	require.Contains(t, out.String(), "too slow: ")
	require.Equal(t, work(1), work(1), "the same work each time")
}

// A module of its own whose test fails with two processors alone.
func TestFlakesFindsATestThatFailsNowAndThen(t *testing.T) {
	full.Only(t, "make flakes itself")
	dir := t.TempDir()
	for file, text := range map[string]string{
		"go.mod": "module example.com/flaky\n\ngo 1.26\n",
		"flaky_test.go": `package flaky

import (
	"runtime"
	"testing"
)

func TestFine(t *testing.T) {}

func TestFlaky(t *testing.T) {
	if runtime.GOMAXPROCS(0) == 2 {
		t.Fatal("two are too many")
	}
}
`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	t.Setenv("GOWORK", "off")
	t.Setenv("RACE", "0")
	t.Setenv("BUSY", "0")
	out, err := script(t, dir, "flakes", "4", "./...")
	require.ErrorContains(t, err, "exit status 1", out)
	require.Contains(t, out, "round 2, plain, 2 processors: example.com/flaky failed:")
	require.Contains(t, out, "two are too many")
	require.Contains(t, out, "1 example.com/flaky TestFlaky\n")
	t.Setenv("RUN", "Fine")
	out, err = script(t, dir, "flakes", "2")
	require.NoError(t, err, out)
}

// script runs one of the scripts of .ci in a directory.
func script(t *testing.T, dir, name string, args ...string) (out string, err error) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash: ", err)
	}
	path, err := filepath.Abs("../../.ci/" + name)
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), bash, append([]string{path}, args...)...)
	command.Dir = dir
	text, err := command.CombinedOutput()
	return string(text), err
}

func TestPackagesAreListedByWhatTheirTestsNeed(t *testing.T) {
	const module = "github.com/weir-go/weir/"
	listed := func(kind string, packages ...string) string {
		args := []string{kind}
		for _, p := range packages {
			args = append(args, module+p)
		}
		out, err := script(t, ".", "packages", args...)
		require.NoError(t, err, out)
		return strings.ReplaceAll(out, module, "")
	}
	require.Equal(t, "cluster\nsync\n", listed("raced", "cluster", "simulations", "soak", "cmd/demo", "internal/snippets", "ring", "internal/wire", "sync"))
	require.Equal(t, "conformance\n", listed("adapters", "conformance", "contrib/grpc"))
	require.Equal(t, "contrib/grpc\n", listed("raced", "conformance", "contrib/grpc"))
	require.Equal(t, "simulations\n", listed("full", "simulations", "internal/clamp"))
}

// The race detector sees nothing in the tests of these packages.
func TestPackagesThatAreNotRacedStartNoGoroutine(t *testing.T) {
	root := os.DirFS("../..")
	text, err := fs.ReadFile(root, ".ci/packages")
	require.NoError(t, err)
	alone := regexp.MustCompile(`(?m)^alone='(.+)'$`).FindSubmatch(text)
	require.NotNil(t, alone)
	named := regexp.MustCompile("^(" + string(alone[1]) + ")$")
	seen := 0
	require.NoError(t, fs.WalkDir(root, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !named.MatchString(path.Dir(name)) || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		seen++
		source, err := fs.ReadFile(root, name)
		require.NoError(t, err)
		file, err := parser.ParseFile(token.NewFileSet(), name, source, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine: take its package out of alone in .ci/packages", name)
			case *ast.SelectorExpr:
				if slices.Contains([]string{"Go", "Parallel", "RunParallel"}, n.Sel.Name) {
					t.Errorf("%s calls %s: take its package out of alone in .ci/packages", name, n.Sel.Name)
				}
			}
			return true
		})
		return nil
	}))
	require.Greater(t, seen, 10)
}

// A test that only the full run has names those that show the same by default.
func TestWhatIsLeftToTheFullRunIsShownByTestsOfTheDefaultRun(t *testing.T) {
	type reason struct{ file, text string }
	var (
		exist   = make(map[string]bool)
		left    = make(map[string]bool) // as a whole, and not some of their cases
		reasons []reason
	)
	root := os.DirFS("../..")
	require.NoError(t, fs.WalkDir(root, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") || path.Dir(name) == "internal/full" {
			return err
		}
		source, err := fs.ReadFile(root, name)
		require.NoError(t, err)
		file, err := parser.ParseFile(token.NewFileSet(), name, source, 0)
		require.NoError(t, err)
		for _, d := range file.Decls {
			test, is := d.(*ast.FuncDecl)
			if !is {
				continue
			}
			exist[test.Name.Name] = true
			ast.Inspect(test, func(n ast.Node) bool {
				call, is := n.(*ast.CallExpr)
				if !is || !calls(call, "full", "Only") {
					return true
				}
				ast.Inspect(call, func(n ast.Node) bool {
					if text, is := n.(*ast.BasicLit); is {
						reasons = append(reasons, reason{name, text.Value})
					}
					return true
				})
				left[test.Name.Name] = left[test.Name.Name] || slices.ContainsFunc(test.Body.List, func(s ast.Stmt) bool {
					e, is := s.(*ast.ExprStmt)
					return is && e.X == call
				})
				return true
			})
		}
		return nil
	}))
	require.Greater(t, len(reasons), 20)
	for _, r := range reasons {
		for _, test := range regexp.MustCompile(`\bTest\w+`).FindAllString(r.text, -1) {
			require.True(t, exist[test], "%s: there is no %s", r.file, test)
			require.False(t, left[test], "%s: %s is left to the full run itself: name a test of the default run", r.file, test)
		}
	}
}

func calls(call *ast.CallExpr, pkg, name string) bool {
	f, is := call.Fun.(*ast.SelectorExpr)
	if !is || f.Sel.Name != name {
		return false
	}
	x, is := f.X.(*ast.Ident)
	return is && x.Name == pkg
}
