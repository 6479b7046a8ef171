package snippets_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/snippets"
)

// packages maps the names of packages that Go snippets use without an import to their paths.
var packages = map[string]string{
	"atomic": "sync/atomic", "context": "context", "fmt": "fmt", "http": "net/http", "log": "log", "math": "math", "netip": "net/netip", "os": "os",
	"signal": "os/signal", "strconv": "strconv", "sync": "sync", "syscall": "syscall", "testing": "testing", "time": "time", "tls": "crypto/tls", "x509": "crypto/x509",

	"grpc":       "google.golang.org/grpc",
	"gin":        "github.com/gin-gonic/gin",
	"echo":       "github.com/labstack/echo/v5",
	"fiber":      "github.com/gofiber/fiber/v3",
	"kgo":        "github.com/twmb/franz-go/pkg/kgo",
	"prometheus": "github.com/prometheus/client_golang/prometheus",
	"promhttp":   "github.com/prometheus/client_golang/prometheus/promhttp",
	"otel":       "go.opentelemetry.io/otel",
	"sdkmetric":  "go.opentelemetry.io/otel/sdk/metric",
	"scram":      "github.com/twmb/franz-go/pkg/sasl/scram",
	"clientv3":   "go.etcd.io/etcd/client/v3",

	"admin":      "github.com/weir-go/weir/admin",
	"audit":      "github.com/weir-go/weir/audit",
	"echolimit":  "github.com/weir-go/weir/contrib/echo",
	"fiberlimit": "github.com/weir-go/weir/contrib/fiber",
	"ginlimit":   "github.com/weir-go/weir/contrib/gin",
	"envoylimit": "github.com/weir-go/weir/contrib/envoy",
	"etcdrules":  "github.com/weir-go/weir/contrib/etcd",
	"grpclimit":  "github.com/weir-go/weir/contrib/grpc",
	"httplimit":  "github.com/weir-go/weir/httplimit",
	"outbound":   "github.com/weir-go/weir/outbound",
	"page":       "github.com/weir-go/weir/page",
	"kafkaaudit": "github.com/weir-go/weir/contrib/kafka",
	"pgrules":    "github.com/weir-go/weir/contrib/postgres",
	"s3snapshot": "github.com/weir-go/weir/contrib/s3",
	"rules":      "github.com/weir-go/weir/rules",
	"service":    "github.com/weir-go/weir/service",
	"snapshot":   "github.com/weir-go/weir/snapshot",
	"weir":       "github.com/weir-go/weir",
	"weirotel":   "github.com/weir-go/weir/contrib/otel",
	"weirprom":   "github.com/weir-go/weir/contrib/prometheus",
	"weirtest":   "github.com/weir-go/weir/weirtest",
}

// around declares the names that snippets use from the service of a reader.
const around = `
var (
	ctx           context.Context
	t             *testing.T
	secret, seed, token []byte
	secrets             [][]byte
	mux           http.Handler
	server        *http.Server
	node, a       *weir.Node
	book          *rules.Book
	perUser       *weir.Limiter
	messages      *weir.Limiter
	old, next     *weir.Limiter
	nextNode      *weir.Node
	key           string
	oldLimit, nextLimit *httplimit.Middleware
	registry      *prometheus.Registry
	exporter      sdkmetric.Exporter
	auth          struct{ UserOf func(context.Context) string }

	authenticate       grpc.UnaryServerInterceptor
	authenticateStream grpc.StreamServerInterceptor
)

func userOf(*http.Request) string
func planOf(*http.Request) string
`

// ellipsis is a line that stands for omitted code.
var ellipsis = regexp.MustCompile(`(?m)^\s*\.\.\.$`)

func TestEverySnippetOfGoCompiles(t *testing.T) {
	imports := importable(t)
	for _, s := range ofLanguage(t, "go") {
		for _, err := range imports.compile(&s) {
			t.Error(err)
		}
	}
}

// compile checks a snippet as the body of a function. An unused variable is not an error, because
// the code continues elsewhere.
func (i *imports) compile(s *snippets.Snippet) (errs []error) {
	text := ellipsis.ReplaceAllString(s.Text, "")
	var b bytes.Buffer
	b.WriteString("package snippet\n")
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		if strings.Contains(text+around, name+".") {
			fmt.Fprintf(&b, "import %s %q\n", name, packages[name])
		}
	}
	fmt.Fprintf(&b, "%s\nfunc _() {\n//line %s:%d:1\n%s\n}\n", around, s.File, s.Line, text)
	file, err := parser.ParseFile(i.files, s.Position(), b.Bytes(), parser.SkipObjectResolution)
	if err != nil {
		return []error{err}
	}
	report := func(err error) {
		e := err.(types.Error) // package types documents this
		if !e.Soft {
			at := i.files.Position(e.Pos)
			errs = append(errs, fmt.Errorf("%s:%d:%d: %s", at.Filename, at.Line, at.Column, e.Msg))
		}
	}
	config := types.Config{Importer: i.from, Error: report}
	_, _ = config.Check("snippet", i.files, []*ast.File{file}, nil) // report has the errors
	return errs
}

// imports are the packages that snippets may use.
type imports struct {
	files *token.FileSet
	from  types.Importer
}

var imported = sync.OnceValues(func() (*imports, error) {
	exports, err := exported()
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	return &imports{files, importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no package %s is among those that snippets may use", path)
		}
		return os.Open(exports[path])
	})}, nil
})

// importable returns the packages, which all tests share. The tests do not run in parallel.
func importable(t *testing.T) *imports {
	t.Helper()
	i, err := imported()
	require.NoError(t, err)
	return i
}

// exported finds the export data of the packages and of their dependencies.
func exported() (map[string]string, error) {
	root, err := snippets.Root()
	if err != nil {
		return nil, err
	}
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, slices.Sorted(maps.Values(packages))...)...)
	list.Dir = root
	var complaint bytes.Buffer
	list.Stderr = &complaint
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, &complaint)
	}
	exports := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	return exports, nil
}
