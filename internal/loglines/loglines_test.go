// Package loglines holds docs/logs.md to what the product logs.
package loglines

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/snippets"
)

const module = "github.com/weir-go/weir"

// product is what logs in production, by patterns of go list.
var product = []string{".", "./audit", "./bucket", "./cluster", "./httplimit", "./ring", "./rules", "./sync", "./internal/...",
	"./contrib/echo/...", "./contrib/envoy/...", "./contrib/fiber/...", "./contrib/gin/...", "./contrib/grpc/...", "./contrib/kafka/...", "./contrib/otel/...", "./contrib/prometheus/...", "./contrib/s3/...", "./cmd/weir/..."}

// levels are the methods of slog.Logger that log, and what docs/logs.md calls them.
var levels = map[string]string{"Debug": "debug", "Info": "info", "Warn": "warn", "Error": "error"}

// line is one line of the log, wherever it is logged.
type line struct{ level, message, fields string }

func TestEveryLineOfTheLogIsDocumentedAndNoOther(t *testing.T) {
	logged := make(map[line]bool)
	for _, p := range load(t, product...) {
		for _, l := range p.lines(t) {
			logged[l] = true
		}
	}
	require.Greater(t, len(logged), 25)
	documented := make(map[line]bool)
	for _, l := range rows(t) {
		require.False(t, documented[l], "%v is there twice", l)
		documented[l] = true
	}
	for l := range logged {
		require.True(t, documented[l], "docs/logs.md has no row | %s | `%s` | %s |", l.level, l.message, l.fields)
	}
	for l := range documented {
		require.True(t, logged[l], "docs/logs.md has %v, which is not logged", l)
	}
}

func TestEveryFieldOfTheLogHasOneMeaning(t *testing.T) {
	used := make(map[string]bool)
	for _, l := range rows(t) {
		for field := range strings.SplitSeq(l.fields, " ") {
			used[field] = true
		}
	}
	delete(used, "")
	explained := make(map[string]bool)
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| [^|`]").FindAllStringSubmatch(document(t), -1) {
		require.False(t, explained[m[1]], "%s is explained twice", m[1])
		require.Regexp(t, `^[a-z]+(_[a-z]+)*$`, m[1])
		explained[m[1]] = true
	}
	require.Equal(t, slices.Sorted(maps.Keys(used)), slices.Sorted(maps.Keys(explained)))
}

// A test that finds nothing wrong may look for nothing.
func TestALineThatIsNotConstantOrReadsInTwoWaysIsFound(t *testing.T) {
	files := token.NewFileSet()
	from := importer.ForCompiler(files, "gc", exports(t, "context", "log/slog", "net", "time"))
	for body, want := range map[string]string{
		`log.Warn("a", "b", 1)`: "{warn a b}",
		`log.Warn("a", "b", wait.String(), "c", error(nil), "d", wait > 0, "e", at, "f", []string{"g"})`: "{warn a b c d e f}",
		`log.Warn("a", "b", wait)`:                                        "p.go:7:82: a field is a time.Duration, which not all handlers write as its String: log that",
		`log.Warn("a", "b", 2*wait.Round(1))`:                             "p.go:7:82: a field is a time.Duration, which not all handlers write as its String: log that",
		`attrs := []any{"b", wait}; log.Info("a", attrs...)`:              "p.go:7:83: a field is a time.Duration, which not all handlers write as its String: log that",
		`log.Warn("a", "b", addr)`:                                        "p.go:7:82: a field is a net.Addr, which not all handlers write as its String: log that",
		`log.Warn("a", "b", at.Month())`:                                  "p.go:7:82: a field is a time.Month, which not all handlers write as its String: log that",
		`log.Error("a" + " b")`:                                           "{error a b }",
		`attrs := []any{"b", 1}; log.Info("a", append(attrs, "c", 2)...)`: "{info a b c}",
		`attrs := []any{"b", 1}; if x > 0 { attrs = append(attrs, "c", 2) }; log.Info("a", attrs...)`: "{info a b c}",
		`log.Warn(name)`:             "p.go:7:72: the message is not a constant",
		`log.Warn("a", name, 1)`:     "p.go:7:77: a field's name is not a constant",
		`log.Warn("a", "b")`:         "p.go:7:77: a field has no value",
		`log.Log(ctx, 1, "a")`:       "p.go:7:63: use Debug, Info, Warn or Error",
		`slog.Info("a")`:             "p.go:7:63: use the Logger that was given",
		`log.With("a", 1).Warn("a")`: "p.go:7:63: use Debug, Info, Warn or Error",
	} {
		text := "package p\nimport \"context\"\nimport \"log/slog\"\nimport \"net\"\nimport \"time\"\nvar ctx context.Context; var wait time.Duration; var at time.Time; var addr net.Addr\nfunc f(log *slog.Logger, name string, x int, attrs2 ...any) { " + body + " }\n"
		file, err := parser.ParseFile(files, "p.go", text, 0)
		require.NoError(t, err)
		p, err := check(files, "p", []*ast.File{file}, from)
		require.NoError(t, err)
		got, err := p.logged()
		if err != nil {
			require.EqualError(t, err, want, body)
			continue
		}
		require.Equal(t, "["+want+"]", fmt.Sprint(got), body)
	}
}

func document(t *testing.T) string {
	root, err := snippets.Root()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs", "logs.md"))
	require.NoError(t, err)
	return string(text)
}

// rows are the lines that docs/logs.md has: | level | `message` | `field` `field` | ...
func rows(t *testing.T) (all []line) {
	row := regexp.MustCompile("(?m)^\\| (debug|info|warn|error) \\| `([^`]+)` \\|([^|]*)\\| [^|]+\\|$")
	for _, m := range row.FindAllStringSubmatch(document(t), -1) {
		var fields []string
		for _, f := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(m[3], -1) {
			fields = append(fields, f[1])
		}
		all = append(all, line{m[1], m[2], sorted(fields)})
	}
	require.NotEmpty(t, all)
	return all
}

func sorted(fields []string) string {
	slices.Sort(fields)
	return strings.Join(slices.Compact(fields), " ")
}

// pkg is a package whose types are known.
type pkg struct {
	files *token.FileSet
	asts  []*ast.File
	info  *types.Info
}

// load reads the packages of these patterns, as they are built.
func load(t *testing.T, patterns ...string) (all []*pkg) {
	type listed struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
		DepOnly                 bool
	}
	root, err := snippets.Root()
	require.NoError(t, err)
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,DepOnly"}, patterns...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		t.Fatalf("go list: %s", exit.Stderr)
	}
	require.NoError(t, err)
	export := make(map[string]string)
	var own []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p listed
		require.NoError(t, d.Decode(&p))
		export[p.ImportPath] = p.Export
		if !p.DepOnly {
			own = append(own, p)
		}
	}
	files := token.NewFileSet()
	from := importer.ForCompiler(files, "gc", opener(export))
	for _, p := range own {
		require.True(t, strings.HasPrefix(p.ImportPath, module), p.ImportPath)
		var asts []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, 0)
			require.NoError(t, err)
			asts = append(asts, file)
		}
		checked, err := check(files, p.ImportPath, asts, from)
		require.NoError(t, err)
		all = append(all, checked)
	}
	return all
}

func opener(export map[string]string) func(path string) (io.ReadCloser, error) {
	return func(path string) (io.ReadCloser, error) { return os.Open(export[path]) }
}

func exports(t *testing.T, packages ...string) func(path string) (io.ReadCloser, error) {
	out, err := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, packages...)...).Output()
	require.NoError(t, err)
	export := make(map[string]string)
	for l := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(l), " ")
		export[path] = file
	}
	return opener(export)
}

func check(files *token.FileSet, path string, asts []*ast.File, from types.Importer) (*pkg, error) {
	p := &pkg{files, asts, &types.Info{
		Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object),
	}}
	_, err := (&types.Config{Importer: from}).Check(path, files, asts, p.info)
	return p, err
}

func (p *pkg) lines(t *testing.T) []line {
	t.Helper()
	all, err := p.logged()
	require.NoError(t, err)
	return all
}

// logged finds the lines that a package logs. Messages and fields' names have to be
// constants, so that whoever looks for one of them in the source finds it.
func (p *pkg) logged() (all []line, err error) {
	for _, file := range p.asts {
		for _, d := range file.Decls {
			ast.Inspect(d, func(n ast.Node) bool {
				call, is := n.(*ast.CallExpr)
				if !is || err != nil {
					return err == nil
				}
				var l line
				var logs bool
				if l, logs, err = p.line(d, call); logs && err == nil {
					all = append(all, l)
				}
				return err == nil
			})
		}
	}
	return all, err
}

// line is what a call within a declaration logs, if it does.
func (p *pkg) line(within ast.Node, call *ast.CallExpr) (l line, logs bool, err error) {
	sel, is := call.Fun.(*ast.SelectorExpr)
	if !is {
		return l, false, nil
	}
	f, is := p.info.Uses[sel.Sel].(*types.Func)
	if !is || f.Pkg() == nil {
		return l, false, nil
	}
	level, logs := levels[f.Name()]
	recv := f.Signature().Recv()
	switch path := f.Pkg().Path(); {
	case path == "log" && recv == nil && (strings.HasPrefix(f.Name(), "Print") || strings.HasPrefix(f.Name(), "Fatal") || strings.HasPrefix(f.Name(), "Panic")),
		path == "log/slog" && recv == nil && logs:
		return l, false, p.wrong(call, "use the Logger that was given")
	case path != "log/slog" || recv == nil || recv.Type().String() != "*log/slog.Logger":
		return l, false, nil
	case f.Name() == "Enabled" || f.Name() == "Handler":
		return l, false, nil
	case !logs:
		return l, false, p.wrong(call, "use Debug, Info, Warn or Error")
	}
	message, is := p.text(call.Args[0])
	if !is {
		return l, false, p.wrong(call.Args[0], "the message is not a constant")
	}
	fields, err := p.fields(within, call.Args[1:], call.Ellipsis.IsValid())
	return line{level, message, sorted(fields)}, true, err
}

// fields are the names among the arguments of a line.
func (p *pkg) fields(within ast.Node, args []ast.Expr, spread bool) (names []string, err error) {
	if spread {
		return p.spread(within, args[0])
	}
	for i := 0; i < len(args); i += 2 {
		name, is := p.text(args[i])
		switch {
		case !is:
			return nil, p.wrong(args[i], "a field's name is not a constant")
		case i+1 == len(args):
			return nil, p.wrong(args[i], "a field has no value")
		}
		if of := p.info.TypeOf(args[i+1]); !readsAlike(of) {
			return nil, p.wrong(args[i+1], fmt.Sprintf("a field is a %v, which not all handlers write as its String: log that", of))
		}
		names = append(names, name)
	}
	return names, nil
}

// readsAlike reports whether the handlers for text and for JSON write values of this type
// as one reader understands both. A time.Duration is not among them, which JSON has in
// nanoseconds, nor is a net.Addr, whose fields JSON has.
func readsAlike(of types.Type) bool {
	switch of.String() {
	case "error", "time.Time", "[]string":
		return true
	}
	_, is := of.(*types.Basic)
	return is
}

// spread are the names in a slice: a literal, what is appended to one, or a variable that
// is nothing else.
func (p *pkg) spread(within ast.Node, e ast.Expr) (names []string, err error) {
	switch e := e.(type) {
	case *ast.CompositeLit:
		return p.fields(within, e.Elts, false)
	case *ast.CallExpr:
		if f, is := e.Fun.(*ast.Ident); !is || f.Name != "append" {
			break
		}
		more, err := p.fields(within, e.Args[1:], false)
		if err != nil {
			return nil, err
		}
		names, err = p.spread(within, e.Args[0])
		return append(names, more...), err
	case *ast.Ident:
		found := false
		ast.Inspect(within, func(n ast.Node) bool {
			a, is := n.(*ast.AssignStmt)
			if !is || len(a.Lhs) != 1 || err != nil {
				return true
			}
			to, is := a.Lhs[0].(*ast.Ident)
			if !is || p.object(to) != p.object(e) {
				return true
			}
			var more []string
			if f, is := a.Rhs[0].(*ast.CallExpr); is && len(f.Args) > 0 { // attrs = append(attrs, ...)
				if base, is := f.Args[0].(*ast.Ident); is && p.object(base) == p.object(e) {
					more, err = p.fields(within, f.Args[1:], false)
					names = append(names, more...)
					return true
				}
			}
			found = true
			more, err = p.spread(within, a.Rhs[0])
			names = append(names, more...)
			return true
		})
		if found || err != nil {
			return names, err
		}
	}
	return nil, p.wrong(e, "the fields are not a literal of this function")
}

func (p *pkg) object(i *ast.Ident) types.Object {
	if o := p.info.Defs[i]; o != nil {
		return o
	}
	return p.info.Uses[i]
}

// text is a constant string.
func (p *pkg) text(e ast.Expr) (string, bool) {
	v := p.info.Types[e].Value
	if v == nil || v.Kind() != constant.String {
		return "", false
	}
	return constant.StringVal(v), true
}

func (p *pkg) wrong(n ast.Node, problem string) error {
	at := p.files.Position(n.Pos())
	return fmt.Errorf("%s:%d:%d: %s", filepath.Base(at.Filename), at.Line, at.Column, problem)
}
