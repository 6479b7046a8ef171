package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// unraced are the packages in whose tests the race detector has nothing to see: they start
// processes of their own, count in one goroutine, or read documents.
var unraced = []string{"bench", "cmd/demo", "deploy", "internal/figures", "internal/snippets", "internal/suite", "simulations", "soak"}

// fullPackage is what a test imports that leaves something to the full run.
const fullPackage = "github.com/weir-go/weir/internal/full"

// testPackage is a package that has tests, and its built test programs.
type testPackage struct {
	path, dir    string
	full         bool   // the default run leaves some of its tests to the full run
	plain, raced string // the programs; "" if not built
}

// races reports whether the race detector has something to see in the package's tests.
func (p testPackage) races() bool {
	return !slices.ContainsFunc(unraced, func(path string) bool { return strings.HasSuffix(p.path, "/"+path) })
}

// testPackages lists those of the packages that have tests; of all modules if none is named.
func testPackages(ctx context.Context, patterns []string) ([]testPackage, error) {
	if len(patterns) == 0 {
		patterns = []string{"work"}
	}
	const format = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Dir}}\t{{.TestImports}} {{.XTestImports}}{{end}}"
	text, err := exec.CommandContext(ctx, "go", append([]string{"list", "-f", format}, patterns...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var found []testPackage
	for line := range strings.Lines(string(text)) {
		if fields := strings.Split(strings.TrimSpace(line), "\t"); len(fields) == 3 {
			imports := strings.FieldsFunc(fields[2], func(r rune) bool { return strings.ContainsRune("[] ", r) })
			found = append(found, testPackage{path: fields[0], dir: fields[1], full: slices.Contains(imports, fullPackage)})
		}
	}
	if len(found) == 0 {
		return nil, usageError(fmt.Sprintf("no package of %q has tests", patterns))
	}
	return found, nil
}

// raced prints the packages that the race detector is to run.
func raced(ctx context.Context, args []string, _ io.Reader, out io.Writer) error {
	return list(ctx, args, out, testPackage.races)
}

// fullRun prints the packages that leave tests to the full run.
func fullRun(ctx context.Context, args []string, _ io.Reader, out io.Writer) error {
	return list(ctx, args, out, func(p testPackage) bool { return p.full })
}

func list(ctx context.Context, args []string, out io.Writer, which func(testPackage) bool) error {
	if len(args) > 0 {
		return usageError(fmt.Sprintf("%q: it takes no argument", args))
	}
	packages, err := testPackages(ctx, nil)
	if err != nil {
		return err
	}
	for _, p := range packages {
		if which(p) {
			fmt.Fprintln(out, p.path)
		}
	}
	return nil
}
