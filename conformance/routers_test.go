package conformance

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v3"
	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/internal/testnode"
)

var (
	targets = flag.Int("targets", 1500, "how many targets each router gets")
	seed    = flag.Uint64("first", 1, "the seed of the targets")
)

// witness observes a single request at a time.
type witness struct {
	handler string   // the name of the handler that served the request, or empty
	met     []string // rules that matched the request
	status  int      // status of the denial, if the request was denied
}

func (w *witness) decided(o *httplimit.Outcome) {
	w.status = o.Status
	for i := range o.Verdicts {
		w.met = append(w.met, o.Verdicts[i].Rule.Name)
	}
}

// routed is a router with a handler for each route behind the limiter.
type routed struct {
	*app
	witness *witness
}

// serveRoutes serves the routes on a framework.
func (f *framework) serveRoutes(t testing.TB, refuse bool) routed {
	w := new(witness)
	node := testnode.Start(t, weir.Config{})
	book := testnode.Book(t, node, ruleFile())
	s := &site{handlers: make(map[string]func(call) error), layers: []layer{{node: node, book: book, options: options{
		RefuseAmbiguousPaths: refuse, OnDecision: func(_ call, o *httplimit.Outcome) { w.decided(o) },
	}}}}
	for i := range routes {
		s.handlers[routes[i].path] = func(call) error { w.handler = routes[i].name; return nil }
	}
	of, err := f.serve(t, s)
	require.NoError(t, err)
	return routed{of, w}
}

// routers contains the routers whose path handling httplimit and the adapters know.
var routers = map[string]*framework{
	"mux":                 onNetHTTP("mux", newMux),
	"chi":                 onNetHTTP("chi", newChi),
	"echo":                onEcho(echo.RouterConfig{}, nil),
	"echo by Path":        onEcho(echo.RouterConfig{UseEscapedPathForMatching: true}, nil),
	"gin":                 onGin(nil, nil),
	"gin by RawPath":      onGin(func(g *gin.Engine) { g.UseRawPath = true }, nil),
	"gin by EscapedPath":  onGin(func(g *gin.Engine) { g.UseEscapedPath, g.RemoveExtraSlash = true, true }, nil),
	"fiber":               onFiber(fiber.Config{}, nil),
	"fiber, unescaped":    onFiber(fiber.Config{UnescapePath: true}, nil),
	"fiber, strict, case": onFiber(fiber.Config{StrictRouting: true, CaseSensitive: true}, nil),
}

func TestRoutersServeOnlyJudgedTargets(t *testing.T) {
	targets := testenv.PickFull(t, min(500, *targets), *targets)
	for name, f := range routers {
		for _, refuse := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/refuse=%v", name, refuse), func(t *testing.T) {
				s := f.serveRoutes(t, refuse)
				g := grammar{rand.New(rand.NewPCG(*seed, 0))}
				var reached, refused, unparsed, failed int
				for range targets {
					method, target := g.target()
					*s.witness = witness{met: s.witness.met[:0]}
					if _, err := s.send(t.Context(), "192.0.2.1", method+" "+target+" HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
						unparsed++
						continue
					}
					switch w := s.witness; {
					case w.handler == "" && w.status == http.StatusBadRequest:
						refused++
					case w.handler == "":
					case slices.Contains(w.met, w.handler):
						reached++
					default:
						t.Errorf("%s %q reached %s, and met the rules %q", method, target, w.handler, w.met)
						if failed++; failed == 10 {
							t.FailNow()
						}
					}
				}
				t.Logf("%d targets: %d reached a handler and were judged by its rule, %d were refused, %d the server refused", targets, reached, refused, unparsed)
				if !refuse {
					require.Zero(t, refused, "the limiter refuses nothing by default")
					require.Greater(t, reached, targets*3/10)
				}
			})
		}
	}
}

// visit requests a target, and returns the observations of the witness.
func (s routed) visit(t *testing.T, target string) witness {
	*s.witness = witness{}
	_, err := s.send(t.Context(), "192.0.2.1", "GET "+target+" HTTP/1.1\r\nHost: h\r\n\r\n")
	require.NoError(t, err)
	return *s.witness
}

// An adapter knows its router, so an honest client spends no units of unrelated rules.
func TestAdaptersMatchPathsAsTheirRoutersRead(t *testing.T) {
	for name, want := range map[string]map[string]string{
		"echo":                {"/projects/group%2Fproject": "project", "/projects/a/b": "grouped", "/files/a/b": "file", "/files/a%2Fb|": "file", "/a%20b/c%20d": "space"},
		"gin":                 {"/projects/group%2Fproject": "grouped", "/projects/a/b": "grouped", "/files/a%7Cb": "file", "/a%20b/c%20d": "space"},
		"fiber":               {"/projects/group%2Fproject": "project", "/FILES/a": "file", "/login/": "login", "/reports/1": "report", "/login#/x": "login"},
		"fiber, unescaped":    {"/projects/group%2Fproject": "grouped", "/A%20B/c%20d/": "space", "/a+b/c": "space"},
		"fiber, strict, case": {"/projects/group%2Fproject": "project", "/Reports/a": "report"},
	} {
		s := routers[name].serveRoutes(t, false)
		for target, rule := range want {
			w := s.visit(t, target)
			require.Equal(t, rule, w.handler, "%s: %s", name, target)
			require.Equal(t, []string{rule}, w.met, "%s: %s", name, target)
		}
	}
	s := routers["fiber, strict, case"].serveRoutes(t, false)
	for _, target := range []string{"/FILES/a", "/login/"} {
		w := s.visit(t, target)
		require.Empty(t, w.handler, target)
		require.Empty(t, w.met, target)
	}
}

// Real clients send these targets. With RefuseAmbiguousPaths, the middleware refuses only
// the escaped slash that other rules read as a slash.
func TestRoutersServeTargetsOfRealClients(t *testing.T) {
	for name, f := range routers {
		for _, refuse := range []bool{false, true} {
			s := f.serveRoutes(t, refuse)
			for _, target := range []string{
				"/projects/a/b", "/files/a%20b.txt", "/files/%E2%82%AC", "/files/\u20ac", "/files/100%25", "/files/a+b", "/files/a:b@c,d=e", "/files/a|b",
				"/files/C%23", "/files/what%3F", "/files/.well-known", "/admin/%40scope%2Fname", "/admin/group%2Fproject/-/tree", "/login?next=//a/../b#%2F", "/v1/a/items/%7Bid%7D",
			} {
				require.NotEqual(t, http.StatusBadRequest, s.visit(t, target).status, "%s: %s", name, target)
			}
			for _, target := range []string{"/projects/group%2Fproject", "/projects/group%2Fproject|"} {
				status := s.visit(t, target).status
				if !refuse {
					require.NotEqual(t, http.StatusBadRequest, status, "%s: %s", name, target)
				}
			}
		}
	}
	for _, name := range []string{"mux", "chi"} {
		require.Equal(t, http.StatusBadRequest, routers[name].serveRoutes(t, true).visit(t, "/projects/group%2Fproject").status, "%s: two rules read it", name)
	}
}
