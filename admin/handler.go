package admin

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/internal/loglimit"
	"github.com/weir-go/weir/rules"
)

// Options say who may use the admin API. Tokens or MutualTLS must be there;
// where both are, a request needs both.
type Options struct {
	Tokens      [][]byte                     // bearer tokens of 16 bytes and more, all accepted: to rotate, add the new, then remove the old
	MutualTLS   bool                         // the server has verified the client's certificate (tls.RequireAndVerifyClientCert)
	Certificate func(*x509.Certificate) bool // a further condition on that certificate, such as its name; any if nil. Only with MutualTLS
	// Page is served at /page/, to clients that may use the API: a page.Page. A browser gives a
	// token as the password of HTTP Basic, with any name, which is taken there alone. Its
	// requests may take as long as they like. None if nil.
	Page   http.Handler
	Logger *slog.Logger // each change, with its author, and what failed; slog.Default if nil. Never sees a key
}

const (
	minTokenBytes = 16
	stepTimeout   = 10 * time.Second // for a request's body, and then for its work
)

// Admin is the status and admin API, for an address of its own. docs/admin.md
// describes it, and so does what it serves at /openapi.json. book may be nil:
// what is about rules is not found then.
//
// It answers no client that lacks what o asks for; the error is weir.ErrInvalid if
// that is nothing, or a token is too short. A request has 10 s to bring its body,
// of at most 64 KiB, and 20 s in all but for the Page; give the http.Server a ReadHeaderTimeout and
// an IdleTimeout too.
func Handler(node *weir.Node, book *rules.Book, o Options) (http.Handler, error) {
	if node == nil {
		return nil, fmt.Errorf("%w admin.Handler: node is nil: pass one that weir.Start returned", weir.ErrInvalid)
	}
	g, err := newGate(o)
	if err != nil {
		return nil, err
	}
	a, err := newAPI(node, book, g, o.Logger, 0)
	if err != nil {
		return nil, err
	}
	if o.Page != nil {
		a.page = http.StripPrefix(strings.TrimSuffix(pagePath, "/"), o.Page)
	}
	return a, nil
}

// newAPI is an API of the routes that have these traits.
func newAPI(node *weir.Node, book *rules.Book, g *gate, log *slog.Logger, wanted traits) (*api, error) {
	a := &api{node: node, book: book, gate: g, log: cmp.Or(log, slog.Default()), stepTimeout: stepTimeout, routes: make(map[string]map[string]route)}
	if book != nil {
		var err error
		if a.lenient, err = httplimit.New(node, book, httplimit.Options{Logger: a.log}); err != nil {
			return nil, err
		}
		if a.strict, err = httplimit.New(node, book, httplimit.Options{Logger: a.log, RefuseAmbiguousPaths: true}); err != nil {
			return nil, err
		}
	}
	for _, r := range routes {
		if r.traits&wanted != wanted {
			continue
		}
		if a.routes[r.path] == nil {
			a.routes[r.path] = make(map[string]route)
		}
		a.routes[r.path][r.method] = r
		if r.method == http.MethodGet {
			a.routes[r.path][http.MethodHead] = r
		}
	}
	return a, nil
}

type api struct {
	node        *weir.Node
	book        *rules.Book           // may be nil
	lenient     *httplimit.Middleware // decides by book on requests that are described; nil without one
	strict      *httplimit.Middleware // as lenient, but refuses ambiguous paths
	gate        *gate
	log         *slog.Logger
	failed      loglimit.Line // of the line that says so
	stepTimeout time.Duration
	routes      map[string]map[string]route // by path, then by method
	csrf        http.CrossOriginProtection  // a browser may have a certificate
	page        http.Handler                // nil for none
}

// operation answers a request: with nothing if the answer is nil, as a Middleware denies if it
// is a *proxied, and else with JSON.
type operation func(*api, *request) (status int, answer any, err error)

// request is a request that was admitted.
type request struct {
	*http.Request
	w           http.ResponseWriter // for the bounds on the body
	by          string              // the client, as far as it is known
	rest        string              // of the path, after its route's; as it came after extAuthzPath
	stepTimeout time.Duration       // for the body
	rules       *rules.Snapshot     // those that hold now, where the route is ofRules
}

// route is one operation. A path that ends with / has a name after it.
type route struct {
	method, path string
	serve        operation
	traits       traits
}

type traits uint8

const (
	ofRules     traits = 1 << iota // not found on a node without rules
	bare                           // takes no parameters
	forServices                    // also among Checks
	anyMethod                      // answers every method as GET
)

var routes = []route{
	{http.MethodGet, "/v1/status", (*api).status, ofRules},
	{http.MethodGet, "/v1/overrides", (*api).overrides, ofRules | bare},
	{http.MethodPost, "/v1/overrides", (*api).setOverride, ofRules},
	{http.MethodDelete, "/v1/overrides", (*api).deleteOverride, ofRules},
	{http.MethodDelete, "/v1/counts", (*api).deleteCount, 0},
	{http.MethodGet, "/v1/members", (*api).members, bare},
	{http.MethodDelete, memberPath, (*api).deleteMember, bare},
	{http.MethodGet, "/v1/ring", (*api).ring, bare},
	{http.MethodGet, "/v1/stats", (*api).stats, bare},
	{http.MethodGet, "/v1/totals", (*api).totals, bare},
	{http.MethodGet, "/v1/top", (*api).top, 0},
	{http.MethodGet, "/v1/rules", (*api).rules, ofRules | bare},
	{http.MethodPost, "/v1/check", (*api).check, forServices},
	{http.MethodPost, "/v1/take", (*api).take, ofRules | forServices},
	{http.MethodPost, "/v1/peek", (*api).peek, ofRules | forServices},
	{http.MethodPost, "/v1/take_all", (*api).takeAll, ofRules | forServices},
	{http.MethodPost, "/v1/request", (*api).request, ofRules | forServices},
	{http.MethodPost, "/v1/debit", (*api).debit, ofRules | forServices},
	{http.MethodPost, "/v1/refund", (*api).refund, ofRules | forServices},
	{http.MethodPost, "/v1/hold", (*api).hold, ofRules | forServices},
	{http.MethodPost, "/v1/renew", (*api).renew, ofRules | forServices},
	{http.MethodPost, "/v1/release", (*api).release, ofRules | forServices},
	{http.MethodPost, "/v1/reserve", (*api).reserve, ofRules | forServices},
	{http.MethodPost, "/v1/settle", (*api).settle, ofRules | forServices},
	{http.MethodGet, "/v1/forward_auth", (*api).forwardAuth, ofRules | forServices | anyMethod},
	{http.MethodGet, "/v1/auth_request", (*api).authRequest, ofRules | forServices | anyMethod},
	{http.MethodGet, extAuthzPath, (*api).extAuthz, ofRules | forServices},
	{http.MethodGet, "/openapi.json", (*api).openAPI, bare | forServices},
}

const (
	memberPath = "/v1/members/"
	pagePath   = "/page/"
)

// refusal is what is wrong with a request, in words for its sender.
type refusal struct {
	status int
	detail string
}

func (e *refusal) Error() string { return e.detail }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if a.page != nil && strings.HasPrefix(r.URL.Path+"/", pagePath) {
		a.servePage(w, r)
		return
	}
	status, answer, err := a.answer(w, r)
	if err != nil {
		a.sendError(w, r, err)
		return
	}
	switch of := answer.(type) {
	case nil:
		w.WriteHeader(status)
	case *proxied:
		sendBody(w, status, of.contentType, of.body)
	case []byte:
		sendBody(w, status, "application/json", of)
	default:
		text, err := json.Marshal(answer)
		if err != nil {
			a.sendError(w, r, err)
			return
		}
		sendBody(w, status, "application/json", append(text, '\n'))
	}
}

func sendBody(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body)
}

// answer identifies the client before it reveals anything of what is there.
func (a *api) answer(w http.ResponseWriter, r *http.Request) (status int, answer any, err error) {
	by, err := a.gate.admit(w, r)
	if err != nil {
		return 0, nil, err
	}
	if target, ok := extAuthzTarget(r); ok && a.routes[extAuthzPath] != nil {
		return a.serve(w, r, a.routes[extAuthzPath][http.MethodGet], by, target)
	}
	// A proxy may ask by the client's method, and with the client's fields. A page of another
	// origin cannot send the header fields that the proxy must set.
	if route, ok := a.routes[r.URL.Path][http.MethodGet]; ok && route.traits&anyMethod != 0 {
		return a.serve(w, r, route, by, "")
	}
	if err := a.csrf.Check(r); err != nil {
		return 0, nil, refuse(http.StatusForbidden, "the request comes from a page of another origin")
	}
	methods, rest := a.routes[r.URL.Path], ""
	if name, ok := strings.CutPrefix(r.URL.Path, memberPath); ok && name != "" {
		methods, rest = a.routes[memberPath], name
	} else if ok {
		methods = nil
	}
	if methods == nil {
		return 0, nil, refuse(http.StatusNotFound, "there is nothing at this path: /openapi.json lists the paths")
	}
	route, ok := methods[r.Method]
	if !ok {
		allowed := strings.Join(slices.Sorted(maps.Keys(methods)), ", ")
		w.Header().Set("Allow", allowed)
		return 0, nil, refuse(http.StatusMethodNotAllowed, "this path answers %s", allowed)
	}
	return a.serve(w, r, route, by, rest)
}

// serve carries out an operation within its time.
func (a *api) serve(w http.ResponseWriter, r *http.Request, route route, by, rest string) (status int, answer any, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*a.stepTimeout)
	defer cancel()
	of := &request{r.WithContext(ctx), w, by, rest, a.stepTimeout, nil}
	if route.traits&ofRules != 0 {
		if of.rules, err = a.currentRules(); err != nil {
			return 0, nil, err
		}
	}
	if route.traits&bare != 0 {
		if err := of.parameters(); err != nil {
			return 0, nil, err
		}
	}
	return route.serve(a, of)
}

// servePage serves the page to a client that is admitted.
func (a *api) servePage(w http.ResponseWriter, r *http.Request) {
	_, err := a.gate.admitBrowser(w, r)
	if err == nil && a.csrf.Check(r) != nil {
		err = refuse(http.StatusForbidden, "the request comes from a page of another origin")
	}
	switch {
	case err != nil:
		a.sendError(w, r, err)
	case r.URL.Path+"/" == pagePath:
		http.Redirect(w, r, pagePath, http.StatusPermanentRedirect)
	default:
		a.page.ServeHTTP(w, r)
	}
}

// sendError says what is wrong: what the caller can mend in full, the rest in the log.
func (a *api) sendError(w http.ResponseWriter, r *http.Request, err error) {
	var noEnd *httplimit.ErrNoEnd
	if errors.As(err, &noEnd) {
		err = refuseNoEnd(noEnd.Limit, r.URL.Path)
	}
	var told *refusal
	switch {
	case errors.As(err, &told):
	case errors.Is(err, weir.ErrInvalid):
		detail := strings.ReplaceAll(err.Error(), weir.ErrInvalid.Error()+" ", "")
		told = &refusal{http.StatusBadRequest, strings.ReplaceAll(detail, "\n", "; ")}
	case errors.Is(err, weir.ErrClosed):
		told = &refusal{http.StatusServiceUnavailable, "the node is closed: ask another"}
	case errors.Is(err, context.Canceled):
		told = &refusal{httplimit.StatusClientGone, "the client is gone"}
	case errors.Is(err, context.DeadlineExceeded):
		told = &refusal{http.StatusGatewayTimeout, "the other nodes did not answer in time: ask again"}
	default:
		if unlogged, due := a.failed.Due(time.Now()); due {
			a.log.Error("a request to the admin API failed", "method", r.Method, "url_path", r.URL.Path, "error", err, "unlogged", unlogged)
		}
		told = &refusal{http.StatusInternalServerError, "the log of this node says more"}
	}
	text, _ := json.Marshal(httplimit.Problem{Type: "about:blank", Title: cmp.Or(http.StatusText(told.status), "Client Closed Request"), Status: told.status, Detail: told.detail})
	sendBody(w, told.status, "application/problem+json", append(text, '\n'))
}

// currentRules is the rules that hold now.
func (a *api) currentRules() (*rules.Snapshot, error) {
	if a.book == nil {
		return nil, refuse(http.StatusNotFound, "this node has no rules")
	}
	return a.book.Current(), nil
}

// findLimit finds a limit of the rules.
func findLimit(s *rules.Snapshot, name string) (*rules.Limit, error) {
	l, _, ok := s.Limit(name)
	if !ok {
		var known []string
		for _, r := range s.Rules() {
			for i := range r.Limits {
				known = append(known, r.Limits[i].Name)
			}
		}
		return nil, refuse(http.StatusNotFound, "there is no limit %q: %s", name, enum.Suggest(name, known))
	}
	return l, nil
}
