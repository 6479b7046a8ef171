package snippets_test

import (
	"encoding/json"
	"flag"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/snippets"
)

// tested are the commands whose own tests hold what documents say of them.
var tested = []string{"./bench", "./cmd/demo", "./cmd/weir", "./simulations", "./soak"}

func TestEveryCommandIsThere(t *testing.T) {
	commands, err := snippets.Commands()
	require.NoError(t, err)
	require.NotEmpty(t, commands)
	root, err := snippets.Root()
	require.NoError(t, err)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	for _, c := range commands {
		args := c.Words[min(2, len(c.Words)):]
		switch {
		case c.Words[0] == "make":
			for _, target := range c.Words[1:] {
				if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(target) + `:`).Match(makefile) {
					t.Errorf("%s: the Makefile has no target %s", c.At(), target)
				}
			}
		case c.Words[0] == "curl":
			curl(t, &c)
		case c.Words[0] == "weir": // cmd/weir runs it
		case c.Words[0] == "docker" && c.Words[1] == "push": // what the line before has built
			built := slices.IndexFunc(commands, func(b snippets.Command) bool {
				i := slices.Index(b.Words, "-t")
				return b.File == c.File && i > 0 && len(c.Words) == 3 && b.Words[0] == "docker" && b.Words[i+1] == c.Words[2]
			})
			if built < 0 {
				t.Errorf("%s: no command of this document builds %s", c.At(), c.Words[len(c.Words)-1])
			}
		case c.Words[0] == "docker": // no engine is at hand; cmd/weir holds the file to what is there
			if i := slices.Index(c.Words, "-f"); i < 0 || i+1 == len(c.Words) {
				t.Errorf("%s: which file?", c.At())
			} else if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(c.Words[i+1]))); err != nil {
				t.Errorf("%s: %v", c.At(), err)
			}
		case c.Words[0] == "kubectl":
			kubectl(t, root, &c)
		case c.Words[0] == "helm":
			helm(t, root, &c)
		case c.Words[0] == "openssl": // what it prints is a token, of any kind
		case c.Words[0] != "go" || len(args) == 0:
			t.Errorf("%s: no test holds %q: add one, or call something else", c.At(), c.Words)
		case c.Words[1] == "run":
			if !slices.Contains(tested, args[0]) {
				t.Errorf("%s: no test holds the flags of %s: add one, or call something else", c.At(), args[0])
			}
		case c.Words[1] == "get":
			if _, err := build.Import(args[0], root, build.FindOnly); err != nil || !strings.HasPrefix(args[0], "github.com/weir-go/weir") {
				t.Errorf("%s: there is no package %s: %v", c.At(), args[0], err)
			}
		case c.Words[1] == "test":
			goTest(t, root, &c, args)
		default:
			t.Errorf("%s: no test holds go %s: add one, or call something else", c.At(), c.Words[1])
		}
	}
}

// kubectl holds a command to what deploy has: its folders, and a -- to the command of the
// image.
func kubectl(t *testing.T, root string, c *snippets.Command) {
	if len(c.Words) < 2 || !slices.Contains([]string{"apply", "create", "exec", "label", "rollout"}, c.Words[1]) {
		t.Errorf("%s: no test holds %q", c.At(), c.Words)
	}
	for i, w := range c.Words[1:] {
		switch {
		case w == "-k":
			there(t, root, c, c.Words[i+2], "kustomization.yaml")
		case w == "--" && c.Words[i+2] != "/weir":
			t.Errorf("%s: the image has no %s", c.At(), c.Words[i+2])
		}
	}
}

// helm holds a command to the chart, its values and files of values.
func helm(t *testing.T, root string, c *snippets.Command) {
	if len(c.Words) < 4 || c.Words[1] != "install" && c.Words[1] != "upgrade" {
		t.Errorf("%s: no test holds %q", c.At(), c.Words)
		return
	}
	there(t, root, c, c.Words[3], "Chart.yaml")
	var values map[string]any
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(c.Words[3]), "values.yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &values))
	for i, w := range c.Words {
		switch w {
		case "-f":
			there(t, root, c, c.Words[i+1], "")
		case "--set":
			name, _, _ := strings.Cut(c.Words[i+1], "=")
			in := values
			for part := range strings.SplitSeq(name, ".") {
				value, ok := in[part]
				if !ok {
					t.Errorf("%s: the chart has no value %s", c.At(), name)
					break
				}
				in, _ = value.(map[string]any)
			}
		}
	}
}

// there holds a path to what is in the project.
func there(t *testing.T, root string, c *snippets.Command, path ...string) {
	if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(filepath.Join(path...)))); err != nil {
		t.Errorf("%s: %v", c.At(), err)
	}
}

// from finds the directories that a command may be meant from: the project's, its
// document's, and those that the document names so: From `bench/`.
func from(t *testing.T, root string, c *snippets.Command) []string {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(c.File)))
	require.NoError(t, err)
	dirs := []string{root, filepath.Join(root, filepath.Dir(filepath.FromSlash(c.File)))}
	for _, m := range regexp.MustCompile("From `([^`]+)/`").FindAllStringSubmatch(string(text), -1) {
		dirs = append(dirs, filepath.Join(root, filepath.FromSlash(m[1])))
	}
	return dirs
}

// buildFlags are those of go test that are not of the test, by whether they have a
// value.
var buildFlags = map[string]bool{"race": false, "work": false, "x": false, "a": false, "tags": true, "mod": true, "overlay": true}

// goTest holds a go test to the packages, tests and flags that are there.
func goTest(t *testing.T, root string, c *snippets.Command, args []string) {
	var patterns []string
	patternOf := map[string]string{} // by flag
	var own []string                 // flags that only the package can know
	for i := 0; i < len(args); i++ {
		name, value, has := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if !strings.HasPrefix(args[i], "-") {
			patterns = append(patterns, args[i])
			continue
		}
		takes, known := buildFlags[name]
		if f := flag.Lookup("test." + name); f != nil {
			b, is := f.Value.(interface{ IsBoolFlag() bool })
			takes, known = !is || !b.IsBoolFlag(), true
		}
		if !known {
			// What comes next is its value, unless it is the last or another flag follows.
			own, takes = append(own, name), i+1 < len(args) && !strings.HasPrefix(args[i+1], "-")
		}
		if takes && !has {
			if i++; i == len(args) {
				t.Errorf("%s: -%s has no value", c.At(), name)
				return
			}
			value = args[i]
		}
		if name == "run" || name == "bench" {
			patternOf[name] = value
		}
	}
	if len(patterns) == 0 {
		patterns = []string{"."}
	}
	var why []string
	for _, dir := range from(t, root, c) {
		s := sources(t, root, dir, patterns)
		wrong := s.wrong(patternOf, own)
		if wrong == "" {
			return
		}
		why = append(why, wrong)
	}
	t.Errorf("%s: %q: %s", c.At(), c.Words, strings.Join(slices.Compact(why), "; "))
}

// testSources is what the tests of some packages have.
type testSources struct {
	missing string // a package that is not there
	funcs   []string
	texts   [][]byte
}

func sources(t *testing.T, root, dir string, patterns []string) *testSources {
	s := new(testSources)
	for _, pattern := range patterns {
		base, all := strings.CutSuffix(pattern, "...")
		base = filepath.Join(dir, filepath.FromSlash(base))
		if pattern == "work" {
			base, all = root, true
		}
		has := false
		err := filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && path != base && (!all || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
				return filepath.SkipDir
			}
			has = has || filepath.Ext(path) == ".go"
			if strings.HasSuffix(path, "_test.go") {
				s.add(t, path)
			}
			return nil
		})
		if err != nil || !has {
			s.missing = pattern
		}
	}
	return s
}

// A testFile is what one file of tests has.
type testFile struct {
	funcs []string
	text  []byte
}

// testFiles are those that were read, by path: documents name the same packages many times.
var testFiles = make(map[string]testFile)

func (s *testSources) add(t *testing.T, path string) {
	f, ok := testFiles[path]
	if !ok {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		require.NoError(t, err)
		f.text = text
		for _, d := range file.Decls {
			if of, ok := d.(*ast.FuncDecl); ok && of.Recv == nil {
				f.funcs = append(f.funcs, of.Name.Name)
			}
		}
		testFiles[path] = f
	}
	s.texts = append(s.texts, f.text)
	s.funcs = append(s.funcs, f.funcs...)
}

// kinds are what the flags of go test choose among.
var kinds = map[string]*regexp.Regexp{"run": regexp.MustCompile("^(Test|Fuzz|Example)"), "bench": regexp.MustCompile("^Benchmark")}

// wrong says what of a go test is not there, and nothing if all is.
func (s *testSources) wrong(patterns map[string]string, flags []string) string {
	if s.missing != "" {
		return "there is no package " + s.missing
	}
	for kind, pattern := range patterns {
		if kind == "run" && pattern == "^$" {
			continue // meant to be none
		}
		chosen, err := regexp.Compile(strings.Split(pattern, "/")[0])
		if err != nil {
			return err.Error()
		}
		if !slices.ContainsFunc(s.funcs, func(name string) bool { return kinds[kind].MatchString(name) && chosen.MatchString(name) }) {
			return "-" + kind + " " + pattern + " chooses nothing"
		}
	}
	for _, name := range flags {
		if defined := regexp.MustCompile(`flag\.\w+\((&\w+, )?"` + regexp.QuoteMeta(name) + `"`); !slices.ContainsFunc(s.texts, defined.Match) {
			return "there is no flag -" + name
		}
	}
	return ""
}

// api is what the admin API's document says of an operation.
type api struct {
	Paths map[string]map[string]struct {
		Parameters  []struct{ Name, In string }
		RequestBody struct {
			Content map[string]struct {
				Schema struct {
					Ref string `json:"$ref"`
				}
			}
		}
	}
	Components struct {
		Schemas map[string]struct{ Properties map[string]any }
	}
}

var openAPI = sync.OnceValues(func() (d api, err error) { return d, json.Unmarshal(httplimit.OpenAPI(), &d) })

// curl holds a request to the admin API's document: its path and method, the
// parameters of its query and the fields of its body.
func curl(t *testing.T, c *snippets.Command) {
	d, err := openAPI()
	require.NoError(t, err)
	method, address, body := http.MethodGet, "", ""
	for i := 1; i < len(c.Words); i++ {
		switch w := c.Words[i]; {
		case w == "-d" || w == "--data":
			i++
			method, body = http.MethodPost, c.Words[i]
		case w == "-X":
			i++
			method = c.Words[i]
		case w == "-H" || strings.HasPrefix(w, "-") && strings.HasSuffix(w, "H"):
			i++
		case !strings.HasPrefix(w, "-"):
			address = w
		}
	}
	u, err := url.Parse("http://" + strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Errorf("%s: %v", c.At(), err)
		return
	}
	operation, ok := d.Paths[u.Path][strings.ToLower(method)]
	if !ok {
		t.Errorf("%s: the admin API has no %s %s", c.At(), method, u.Path)
		return
	}
	for name := range u.Query() {
		if !slices.ContainsFunc(operation.Parameters, func(p struct{ Name, In string }) bool { return p.In == "query" && p.Name == name }) {
			t.Errorf("%s: %s has no parameter %s", c.At(), u.Path, name)
		}
	}
	if body == "" {
		return
	}
	var fields map[string]any
	if err := json.Unmarshal([]byte(body), &fields); err != nil {
		t.Errorf("%s: %v: %s", c.At(), err, body)
	}
	schema := d.Components.Schemas[filepath.Base(operation.RequestBody.Content["application/json"].Schema.Ref)]
	for name := range fields {
		if schema.Properties[name] == nil {
			t.Errorf("%s: %s has no field %s", c.At(), u.Path, name)
		}
	}
}

// What a command answers in a document is JSON as well.
func TestEveryAnswerOfTheAdminAPIIsJSON(t *testing.T) {
	calls, err := snippets.CallsOf("curl")
	require.NoError(t, err)
	for _, c := range calls {
		if c.Output != "" && !json.Valid([]byte(c.Output)) {
			t.Errorf("%s: not JSON: %s", c.At(), c.Output)
		}
	}
}
