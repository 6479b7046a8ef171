package admin

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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
	adminMinToken = 16
	adminPatience = 10 * time.Second // for a request's body, and then for its work
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
	g, err := newAdminGate(o)
	if err != nil {
		return nil, err
	}
	a, err := routed(node, book, g, o.Logger, adminRoutes)
	if err != nil {
		return nil, err
	}
	if o.Page != nil {
		a.page = http.StripPrefix(strings.TrimSuffix(adminPage, "/"), o.Page)
	}
	return a, nil
}

// routed is an API of these routes.
func routed(node *weir.Node, book *rules.Book, g *adminGate, log *slog.Logger, routes []adminRoute) (*admin, error) {
	a := &admin{node: node, book: book, gate: g, log: log, patience: adminPatience, routes: make(map[string]map[string]adminRoute)}
	a.log = cmp.Or(a.log, slog.Default())
	if book != nil {
		var err error
		if a.rulesOf, err = httplimit.New(node, book, httplimit.Options{Logger: a.log}); err != nil {
			return nil, err
		}
		if a.strict, err = httplimit.New(node, book, httplimit.Options{Logger: a.log, RefuseAmbiguousPaths: true}); err != nil {
			return nil, err
		}
	}
	for _, r := range routes {
		if a.routes[r.path] == nil {
			a.routes[r.path] = make(map[string]adminRoute)
		}
		a.routes[r.path][r.method] = r
	}
	return a, nil
}

type admin struct {
	node     *weir.Node
	book     *rules.Book           // may be nil
	rulesOf  *httplimit.Middleware // decides by book on requests that are described; nil without one
	strict   *httplimit.Middleware // as rulesOf, but refuses ambiguous paths
	gate     *adminGate
	log      *slog.Logger
	failed   loglimit.Line // of the line that says so
	patience time.Duration
	routes   map[string]map[string]adminRoute // by path, then by method
	csrf     http.CrossOriginProtection       // a browser may have a certificate
	page     http.Handler                     // nil for none
}

// adminFunc answers a request: with nothing if the answer is nil, as a Middleware denies if it
// is a *denial, and else with JSON.
type adminFunc func(*admin, *adminRequest) (status int, answer any, err error)

// adminRequest is a request that was admitted.
type adminRequest struct {
	*http.Request
	w        http.ResponseWriter // for the bounds on the body
	by       string              // the client, as far as it is known
	rest     string              // of the path, after its route's; as it came after extAuthzPath
	patience time.Duration       // for the body
	rules    *rules.Snapshot     // those that hold now, where the route is ofRules
}

// adminRoute is one operation. A path that ends with / has a name after it.
type adminRoute struct {
	method, path string
	serve        adminFunc
	traits       adminTraits
}

type adminTraits uint8

const (
	ofRules     adminTraits = 1 << iota // not found on a node without rules
	bare                                // takes no parameters
	forServices                         // also among Checks
	anyMethod                           // answers every method as GET
)

var adminRoutes = []adminRoute{
	{http.MethodGet, "/v1/status", (*admin).status, ofRules},
	{http.MethodGet, "/v1/overrides", (*admin).overrides, ofRules | bare},
	{http.MethodPost, "/v1/overrides", (*admin).setOverride, ofRules},
	{http.MethodDelete, "/v1/overrides", (*admin).deleteOverride, ofRules},
	{http.MethodDelete, "/v1/counts", (*admin).deleteCount, 0},
	{http.MethodGet, "/v1/members", (*admin).members, bare},
	{http.MethodDelete, adminMemberPath, (*admin).deleteMember, bare},
	{http.MethodGet, "/v1/ring", (*admin).ring, bare},
	{http.MethodGet, "/v1/stats", (*admin).stats, bare},
	{http.MethodGet, "/v1/totals", (*admin).totals, bare},
	{http.MethodGet, "/v1/top", (*admin).top, 0},
	{http.MethodGet, "/v1/rules", (*admin).rules, ofRules | bare},
	{http.MethodPost, "/v1/check", (*admin).check, forServices},
	{http.MethodPost, "/v1/take", (*admin).take, ofRules | forServices},
	{http.MethodPost, "/v1/peek", (*admin).peek, ofRules | forServices},
	{http.MethodPost, "/v1/take_all", (*admin).takeAll, ofRules | forServices},
	{http.MethodPost, "/v1/request", (*admin).request, ofRules | forServices},
	{http.MethodPost, "/v1/debit", (*admin).debit, ofRules | forServices},
	{http.MethodPost, "/v1/refund", (*admin).refund, ofRules | forServices},
	{http.MethodPost, "/v1/hold", (*admin).hold, ofRules | forServices},
	{http.MethodPost, "/v1/renew", (*admin).renew, ofRules | forServices},
	{http.MethodPost, "/v1/release", (*admin).release, ofRules | forServices},
	{http.MethodPost, "/v1/reserve", (*admin).reserve, ofRules | forServices},
	{http.MethodPost, "/v1/settle", (*admin).settle, ofRules | forServices},
	{http.MethodGet, "/v1/forward_auth", (*admin).forwardAuth, ofRules | forServices | anyMethod},
	{http.MethodGet, "/v1/auth_request", (*admin).authRequest, ofRules | forServices | anyMethod},
	{http.MethodGet, extAuthzPath, (*admin).extAuthz, ofRules | forServices},
	{http.MethodGet, "/openapi.json", (*admin).openAPI, bare | forServices},
}

const (
	adminMemberPath = "/v1/members/"
	adminPage       = "/page/"
)

// adminError is what is wrong with a request, in words for its sender.
type adminError struct {
	status int
	detail string
}

func (e *adminError) Error() string { return e.detail }

func adminRefusal(status int, format string, args ...any) error {
	return &adminError{status, fmt.Sprintf(format, args...)}
}

func (a *admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if a.page != nil && strings.HasPrefix(r.URL.Path+"/", adminPage) {
		a.servePage(w, r)
		return
	}
	status, answer, err := a.answer(w, r)
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	switch of := answer.(type) {
	case nil:
		w.WriteHeader(status)
	case *denial:
		sendBody(w, status, of.contentType, of.body)
	case []byte:
		sendBody(w, status, "application/json", of)
	default:
		text, err := json.Marshal(answer)
		if err != nil {
			a.refuse(w, r, err)
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
func (a *admin) answer(w http.ResponseWriter, r *http.Request) (status int, answer any, err error) {
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
		return 0, nil, adminRefusal(http.StatusForbidden, "the request comes from a page of another origin")
	}
	methods, rest := a.routes[r.URL.Path], ""
	if name, ok := strings.CutPrefix(r.URL.Path, adminMemberPath); ok && name != "" {
		methods, rest = a.routes[adminMemberPath], name
	} else if ok {
		methods = nil
	}
	if methods == nil {
		return 0, nil, adminRefusal(http.StatusNotFound, "there is nothing at this path: /openapi.json lists the paths")
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	route, ok := methods[method]
	if !ok {
		w.Header().Set("Allow", adminAllow(methods))
		return 0, nil, adminRefusal(http.StatusMethodNotAllowed, "this path answers %s", adminAllow(methods))
	}
	return a.serve(w, r, route, by, rest)
}

// serve carries out an operation within its time.
func (a *admin) serve(w http.ResponseWriter, r *http.Request, route adminRoute, by, rest string) (status int, answer any, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*a.patience)
	defer cancel()
	of := &adminRequest{r.WithContext(ctx), w, by, rest, a.patience, nil}
	if route.traits&ofRules != 0 {
		if of.rules, err = a.current(); err != nil {
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
func (a *admin) servePage(w http.ResponseWriter, r *http.Request) {
	_, err := a.gate.admitBrowser(w, r)
	if err == nil && a.csrf.Check(r) != nil {
		err = adminRefusal(http.StatusForbidden, "the request comes from a page of another origin")
	}
	switch {
	case err != nil:
		a.refuse(w, r, err)
	case r.URL.Path+"/" == adminPage:
		http.Redirect(w, r, adminPage, http.StatusPermanentRedirect)
	default:
		a.page.ServeHTTP(w, r)
	}
}

func adminAllow(methods map[string]adminRoute) string {
	var names []string
	for name := range methods {
		names = append(names, name)
		if name == http.MethodGet {
			names = append(names, http.MethodHead)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// refuse says what is wrong: what the caller can mend in full, the rest in the log.
func (a *admin) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var noEnd *httplimit.ErrNoEnd
	if errors.As(err, &noEnd) {
		err = refuseNoEnd(noEnd.Limit, r.URL.Path)
	}
	var told *adminError
	switch {
	case errors.As(err, &told):
	case errors.Is(err, weir.ErrInvalid):
		detail := strings.ReplaceAll(err.Error(), weir.ErrInvalid.Error()+" ", "")
		told = &adminError{http.StatusBadRequest, strings.ReplaceAll(detail, "\n", "; ")}
	case errors.Is(err, weir.ErrClosed):
		told = &adminError{http.StatusServiceUnavailable, "the node is closed: ask another"}
	case errors.Is(err, context.Canceled):
		told = &adminError{httplimit.StatusClientGone, "the client is gone"}
	case errors.Is(err, context.DeadlineExceeded):
		told = &adminError{http.StatusGatewayTimeout, "the other nodes did not answer in time: ask again"}
	default:
		if unlogged, due := a.failed.Due(time.Now()); due {
			a.log.Error("a request to the admin API failed", "method", r.Method, "url_path", r.URL.Path, "error", err, "unlogged", unlogged)
		}
		told = &adminError{http.StatusInternalServerError, "the log of this node says more"}
	}
	text, _ := json.Marshal(httplimit.Problem{Type: "about:blank", Title: cmp.Or(http.StatusText(told.status), "Client Closed Request"), Status: told.status, Detail: told.detail})
	sendBody(w, told.status, "application/problem+json", append(text, '\n'))
}

// current is the rules that hold now.
func (a *admin) current() (*rules.Snapshot, error) {
	if a.book == nil {
		return nil, adminRefusal(http.StatusNotFound, "this node has no rules")
	}
	return a.book.Current(), nil
}

// adminLimit finds a limit of the rules.
func adminLimit(s *rules.Snapshot, name string) (*rules.Limit, error) {
	l, _, ok := s.Limit(name)
	if !ok {
		var known []string
		for _, r := range s.Rules() {
			for i := range r.Limits {
				known = append(known, r.Limits[i].Name)
			}
		}
		return nil, adminRefusal(http.StatusNotFound, "there is no limit %q: %s", name, enum.Suggest(name, known))
	}
	return l, nil
}
