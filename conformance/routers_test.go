package conformance

import (
	"bufio"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v3"
	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-go/weir"
	echolimit "github.com/weir-go/weir/contrib/echo"
	fiberlimit "github.com/weir-go/weir/contrib/fiber"
	ginlimit "github.com/weir-go/weir/contrib/gin"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

var (
	targets = flag.Int("targets", 1500, "how many targets each router gets")
	seed    = flag.Uint64("first", 1, "the seed of the targets")
)

// witness sees what became of one request at a time.
type witness struct {
	handler string   // the name of the handler that served the request; empty if none did
	met     []string // rules that judged it
	status  int      // of a denial
}

func (w *witness) decided(o *httplimit.Outcome) {
	w.status = o.Status
	for i := range o.Verdicts {
		w.met = append(w.met, o.Verdicts[i].Rule.Name)
	}
}

// served is a router with a handler for each route behind the limiter.
type served struct {
	witness *witness
	send    func(raw string) error // an error: the server refuses the request
}

// limited starts a node, and returns it with a book that has a rule for each route.
func limited(t testing.TB) (*weir.Node, *rules.Book) {
	node, err := weir.Start(t.Context(), weir.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	set, err := rules.Parse("rules.yaml", []byte(ruleFile()))
	require.NoError(t, err)
	book, err := rules.Static(node, set)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, book.Close()) })
	return node, book
}

// void drops a response.
type void http.Header

func (v void) Header() http.Header         { return http.Header(v) }
func (v void) Write(p []byte) (int, error) { return len(p), nil }
func (v void) WriteHeader(int)             {}

// ofNetHTTP sends requests to a handler as a server of net/http reads them.
func ofNetHTTP(h http.Handler) func(string) error {
	return func(raw string) error {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil {
			return err
		}
		r.RemoteAddr = "192.0.2.1:1"
		h.ServeHTTP(void{}, r)
		return nil
	}
}

// ofMiddleware is a router of net/http behind httplimit.
func ofMiddleware(t testing.TB, refuse bool, router func(handling) http.Handler) served {
	w := new(witness)
	node, book := limited(t)
	m, err := httplimit.New(node, book, httplimit.Options{
		RefuseAmbiguousPaths: refuse, OnDecision: func(_ *http.Request, o *httplimit.Outcome) { w.decided(o) },
	})
	require.NoError(t, err)
	h := m.Handler(router(func(r *route) http.HandlerFunc {
		return func(http.ResponseWriter, *http.Request) { w.handler = r.name }
	}))
	return served{w, ofNetHTTP(h)}
}

func decoded(t testing.TB, path string) string {
	plain, err := url.PathUnescape(path)
	require.NoError(t, err)
	return plain
}

// handling makes the handler of a route.
type handling func(r *route) http.HandlerFunc

func muxOf(handle handling) http.Handler {
	mux := http.NewServeMux()
	for i := range routes {
		mux.Handle(routes[i].path, handle(&routes[i]))
	}
	return mux
}

func chiOf(t testing.TB, handle handling) http.Handler {
	mux := chi.NewRouter()
	for i := range routes {
		path := strings.NewReplacer("{$}", "", "{rest...}", "*").Replace(decoded(t, routes[i].path))
		for _, method := range []string{http.MethodGet, http.MethodConnect} {
			mux.Method(method, path, handle(&routes[i]))
		}
	}
	return mux
}

func ofMux(t testing.TB, refuse bool) served {
	return ofMiddleware(t, refuse, muxOf)
}

func ofChi(t testing.TB, refuse bool) served {
	return ofMiddleware(t, refuse, func(handle handling) http.Handler { return chiOf(t, handle) })
}

func ofEcho(config echo.RouterConfig) func(t testing.TB, refuse bool) served {
	return func(t testing.TB, refuse bool) served {
		w := new(witness)
		node, book := limited(t)
		limit, err := echolimit.New(node, book, echolimit.Options{
			RefuseAmbiguousPaths: refuse, OnDecision: func(_ *echo.Context, o *httplimit.Outcome) { w.decided(o) },
		})
		require.NoError(t, err)
		e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(config)})
		e.Logger = slog.New(slog.DiscardHandler)
		e.Use(limit)
		for i := range routes {
			e.Any(decoded(t, routes[i].colon("*")), func(*echo.Context) error { w.handler = routes[i].name; return nil })
		}
		return served{w, ofNetHTTP(e)}
	}
}

func ofGin(configure func(*gin.Engine)) func(t testing.TB, refuse bool) served {
	return func(t testing.TB, refuse bool) served {
		w := new(witness)
		node, book := limited(t)
		limit, err := ginlimit.New(node, book, ginlimit.Options{
			RefuseAmbiguousPaths: refuse, OnDecision: func(_ *gin.Context, o *httplimit.Outcome) { w.decided(o) },
		})
		require.NoError(t, err)
		gin.SetMode(gin.ReleaseMode)
		g := gin.New()
		configure(g)
		g.Use(limit)
		for i := range routes {
			g.Any(decoded(t, routes[i].colon("*rest")), func(*gin.Context) { w.handler = routes[i].name })
		}
		return served{w, ofNetHTTP(g)}
	}
}

func ofFiber(config fiber.Config) func(t testing.TB, refuse bool) served {
	return func(t testing.TB, refuse bool) served {
		w := new(witness)
		node, book := limited(t)
		limit, err := fiberlimit.New(node, book, fiberlimit.Options{
			RefuseAmbiguousPaths: refuse, OnDecision: func(_ fiber.Ctx, o *httplimit.Outcome) { w.decided(o) },
		})
		require.NoError(t, err)
		app := fiber.New(config)
		app.Use(limit)
		for i := range routes {
			path := routes[i].colon("*")
			if config.UnescapePath {
				path = decoded(t, path)
			}
			app.All(path, func(fiber.Ctx) error { w.handler = routes[i].name; return nil })
		}
		h := app.Handler()
		return served{w, func(raw string) error {
			var r fasthttp.Request
			if err := r.Read(bufio.NewReader(strings.NewReader(raw))); err != nil {
				return err
			}
			var c fasthttp.RequestCtx
			c.Init(&r, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}, nil)
			h(&c)
			return nil
		}}
	}
}

// routers are those whose readings of a path httplimit and the adapters know.
var routers = map[string]func(t testing.TB, refuse bool) served{
	"mux":                 ofMux,
	"chi":                 ofChi,
	"echo":                ofEcho(echo.RouterConfig{}),
	"echo by Path":        ofEcho(echo.RouterConfig{UseEscapedPathForMatching: true}),
	"gin":                 ofGin(func(*gin.Engine) {}),
	"gin by RawPath":      ofGin(func(g *gin.Engine) { g.UseRawPath = true }),
	"gin by EscapedPath":  ofGin(func(g *gin.Engine) { g.UseEscapedPath, g.RemoveExtraSlash = true, true }),
	"fiber":               ofFiber(fiber.Config{}),
	"fiber, unescaped":    ofFiber(fiber.Config{UnescapePath: true}),
	"fiber, strict, case": ofFiber(fiber.Config{StrictRouting: true, CaseSensitive: true}),
}

func TestHandlersOfEveryRouterServeOnlyJudgedTargets(t *testing.T) {
	for name, of := range routers {
		for _, refuse := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/refuse=%v", name, refuse), func(t *testing.T) {
				s := of(t, refuse)
				g := grammar{rand.New(rand.NewPCG(*seed, 0))}
				var reached, refused, unparsed, failed int
				for range *targets {
					method, target := g.target()
					*s.witness = witness{met: s.witness.met[:0]}
					if err := s.send(method + " " + target + " HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
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
				t.Logf("%d targets: %d reached a handler and were judged by its rule, %d were refused, %d the server refused", *targets, reached, refused, unparsed)
				if !refuse {
					require.Zero(t, refused, "the limiter refuses nothing by default")
					require.Greater(t, reached, *targets*3/10)
				}
			})
		}
	}
}

// ask sends one target, and returns what became of it.
func (s served) ask(t *testing.T, target string) witness {
	*s.witness = witness{}
	require.NoError(t, s.send("GET "+target+" HTTP/1.1\r\nHost: h\r\n\r\n"))
	return *s.witness
}

// An adapter knows its router, so that an honest client spends nothing of other rules.
func TestAdaptersMeetOnlyTheRulesOfTheirRoutersReading(t *testing.T) {
	for name, want := range map[string]map[string]string{
		"echo":                {"/projects/group%2Fproject": "project", "/projects/a/b": "grouped", "/files/a/b": "file", "/files/a%2Fb|": "file", "/a%20b/c%20d": "space"},
		"gin":                 {"/projects/group%2Fproject": "grouped", "/projects/a/b": "grouped", "/files/a%7Cb": "file", "/a%20b/c%20d": "space"},
		"fiber":               {"/projects/group%2Fproject": "project", "/FILES/a": "file", "/login/": "login", "/reports/1": "report", "/login#/x": "login"},
		"fiber, unescaped":    {"/projects/group%2Fproject": "grouped", "/A%20B/c%20d/": "space"},
		"fiber, strict, case": {"/projects/group%2Fproject": "project", "/Reports/a": "report"},
	} {
		s := routers[name](t, false)
		for target, rule := range want {
			w := s.ask(t, target)
			require.Equal(t, rule, w.handler, "%s: %s", name, target)
			require.Equal(t, []string{rule}, w.met, "%s: %s", name, target)
		}
	}
	s := routers["fiber, strict, case"](t, false)
	for _, target := range []string{"/FILES/a", "/login/"} {
		w := s.ask(t, target)
		require.Empty(t, w.handler, target)
		require.Empty(t, w.met, target)
	}
}

// Clients send these, and RefuseAmbiguousPaths refuses only the escaped slash that other rules
// read as a slash.
func TestNoRouterRefusesTheTargetsOfRealClients(t *testing.T) {
	for name, of := range routers {
		for _, refuse := range []bool{false, true} {
			s := of(t, refuse)
			for _, target := range []string{
				"/projects/a/b", "/files/a%20b.txt", "/files/%E2%82%AC", "/files/\u20ac", "/files/100%25", "/files/a+b", "/files/a:b@c,d=e", "/files/a|b",
				"/files/C%23", "/files/what%3F", "/files/.well-known", "/admin/%40scope%2Fname", "/admin/group%2Fproject/-/tree", "/login?next=//a/../b#%2F", "/v1/a/items/%7Bid%7D",
			} {
				require.NotEqual(t, http.StatusBadRequest, s.ask(t, target).status, "%s: %s", name, target)
			}
			for _, target := range []string{"/projects/group%2Fproject", "/projects/group%2Fproject|"} {
				status := s.ask(t, target).status
				if !refuse {
					require.NotEqual(t, http.StatusBadRequest, status, "%s: %s", name, target)
				}
			}
		}
	}
	for _, name := range []string{"mux", "chi"} {
		require.Equal(t, http.StatusBadRequest, routers[name](t, true).ask(t, "/projects/group%2Fproject").status, "%s: two rules read it", name)
	}
}
