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
	"github.com/weir-go/weir/internal/publish"
	"github.com/weir-go/weir/rules"
)

// Options select the clients that may use the API. Tokens or MutualTLS must be set. If both are set,
// a request needs both.
type Options struct {
	// Tokens are bearer tokens of at least 16 bytes. All are accepted. To rotate a token, add the new
	// one before you remove the old one.
	Tokens [][]byte

	// MutualTLS requires a client certificate that the server has verified
	// (tls.RequireAndVerifyClientCert).
	MutualTLS bool

	// Certificate reports whether a verified certificate is allowed, for example by its name. If
	// nil, every verified certificate is allowed. It is valid only with MutualTLS.
	Certificate func(*x509.Certificate) bool

	// Page, such as a page.Page, is served at /page/ to the clients that may use the API. Only there, a
	// browser may send a token as the password of HTTP Basic, with any user name. Requests below /page/
	// have no time limit. If nil, there is no page.
	Page http.Handler

	// Logger receives a message for each change, with the client that made it, and for failures. The
	// Logger never receives a key. If nil, slog.Default is used.
	Logger *slog.Logger
}

const (
	minTokenBytes = 16
	stepTimeout   = 10 * time.Second // time limit of the body of a request; the whole request may take twice as long
)

// Handler returns the status and admin API, which needs an address of its own. docs/admin.md and the
// document at /openapi.json describe it. If book is nil, the endpoints of rules answer 404.
//
// Every request needs the credentials of o. The error is weir.ErrInvalid if node is nil or o is not
// valid. The body of a request has at most 64 KiB, or 4 MiB with a text of rules, and must arrive
// within 10 s. A request takes at most 20 s in all, except requests of the Page. Also set the
// ReadHeaderTimeout and the IdleTimeout of the http.Server.
func Handler(node *weir.Node, book *rules.Book, o Options) (http.Handler, error) {
	if node == nil {
		return nil, fmt.Errorf("%w admin.Handler: node is nil: pass one that weir.Start returned", weir.ErrInvalid)
	}
	g, err := newGate(o, "Options", "the admin API is never open to every client")
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

// newAPI returns an API of the routes that have all the wanted traits.
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
	book        *rules.Book           // nil without rules
	lenient     *httplimit.Middleware // decides by book; nil without a book
	strict      *httplimit.Middleware // like lenient, but refuses ambiguous paths
	gate        *gate                 // nil if every client may ask
	log         *slog.Logger
	failed      loglimit.Line // limits how often the log reports failed requests
	stepTimeout time.Duration
	routes      map[string]map[string]route // keyed by path, then by method
	csrf        http.CrossOriginProtection  // needed because a browser sends its client certificate with cross-origin requests, too
	page        http.Handler                // nil without a page
	usageFields *UsageFields                // nil if the usage is not shown
}

// operation executes a request. The response has no body if answer is nil. A []byte is JSON text, a
// *proxied has a body of its own, and any other answer is encoded as JSON.
type operation func(*api, *request) (status int, answer any, err error)

// request is a request that the gate has admitted.
type request struct {
	*http.Request
	w           http.ResponseWriter // limits the body, and receives header fields
	by          string              // name of the client, if the gate knows a name
	rest        string              // end of the path, after the path of the route; escaped after extAuthzPath
	stepTimeout time.Duration       // time limit of the body
	maxBody     int64               // maximum size of the body, in bytes
	rules       *rules.Snapshot     // current rules if the route is ofRules, nil otherwise
}

// route is an operation with its method and path. At memberPath and extAuthzPath, the path of a request
// begins with the path of the route.
type route struct {
	method, path string
	serve        operation
	traits       traits
}

type traits uint8

const (
	ofRules     traits = 1 << iota // answers 404 on a node without rules
	bare                           // accepts no parameters
	forServices                    // is also served by CheckHandler
	anyMethod                      // answers every method as GET
	hasText                        // accepts a body with a text of rules
)

var routes = []route{
	{http.MethodGet, "/v1/status", (*api).status, ofRules},
	{http.MethodGet, "/v1/overrides", (*api).overrides, ofRules | bare},
	{http.MethodPost, "/v1/overrides", (*api).setOverride, ofRules},
	{http.MethodDelete, "/v1/overrides", (*api).deleteOverride, ofRules},
	{http.MethodGet, "/v1/switches", (*api).switches, ofRules | bare},
	{http.MethodPut, "/v1/switches", (*api).setSwitch, ofRules},
	{http.MethodDelete, "/v1/switches", (*api).deleteSwitch, ofRules},
	{http.MethodGet, "/v1/suggestions", (*api).suggestions, ofRules | bare},
	{http.MethodPost, "/v1/suggestions", (*api).acceptSuggestion, ofRules},
	{http.MethodGet, "/v1/bans", (*api).bans, bare},
	{http.MethodDelete, "/v1/bans", (*api).deleteBan, ofRules},
	{http.MethodGet, "/v1/blocks", (*api).blocks, ofRules | bare},
	{http.MethodPut, "/v1/blocks", (*api).setBlock, ofRules},
	{http.MethodDelete, "/v1/blocks", (*api).deleteBlock, ofRules},
	{http.MethodGet, "/v1/clients", (*api).showClient, ofRules},
	{http.MethodDelete, "/v1/clients/counts", (*api).resetClient, ofRules},
	{http.MethodPut, "/v1/clients/overrides", (*api).overrideClient, ofRules},
	{http.MethodDelete, "/v1/clients/overrides", (*api).restoreClient, ofRules},
	{http.MethodDelete, "/v1/counts", (*api).deleteCount, 0},
	{http.MethodGet, "/v1/members", (*api).members, 0},
	{http.MethodDelete, memberPath, (*api).deleteMember, bare},
	{http.MethodGet, "/v1/ring", (*api).ring, bare},
	{http.MethodGet, "/v1/stats", (*api).stats, bare},
	{http.MethodGet, "/v1/totals", (*api).totals, bare},
	{http.MethodGet, "/v1/top", (*api).top, 0},
	{http.MethodGet, "/v1/rules", (*api).rules, ofRules | bare},
	{http.MethodPut, "/v1/rules", (*api).putRules, ofRules | hasText},
	{http.MethodPost, "/v1/check", (*api).check, forServices},
	{http.MethodPost, "/v1/take", (*api).takeUnits, ofRules | forServices},
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
	{http.MethodGet, "/v1/usage", (*api).usage, ofRules | forServices},
	{http.MethodGet, extAuthzPath, (*api).extAuthz, ofRules | forServices},
	{http.MethodGet, "/openapi.json", (*api).openAPI, bare | forServices},
}

const (
	memberPath = "/v1/members/"
	pagePath   = "/page/"
)

// refusal is an error with a status and a text for the sender of the request.
type refusal struct {
	status int
	detail string
}

func (e *refusal) Error() string { return e.detail }

// refuse returns a refusal.
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

// answer serves a request by its route. A client that the gate does not admit learns
// nothing, not even which paths exist.
func (a *api) answer(w http.ResponseWriter, r *http.Request) (status int, answer any, err error) {
	by, err := a.gate.admit(w, r)
	if err != nil {
		return 0, nil, err
	}
	if target, ok := extAuthzTarget(r); ok && a.routes[extAuthzPath] != nil {
		return a.serve(w, r, a.routes[extAuthzPath][http.MethodGet], by, target)
	}
	// Proxies ask with the method and the fields of their client, so the check of the origin may
	// refuse them. A page of a foreign origin cannot send the fields that such a route requires.
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

// serve executes the operation of a route within twice the stepTimeout.
func (a *api) serve(w http.ResponseWriter, r *http.Request, route route, by, rest string) (status int, answer any, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*a.stepTimeout)
	defer cancel()
	of := &request{r.WithContext(ctx), w, by, rest, a.stepTimeout, maxBodyBytes, nil}
	if route.traits&hasText != 0 {
		of.maxBody = maxTextBytes
	}
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

// servePage serves the page to a client that the gate admits.
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

// sendError answers with a problem. The detail of the problem is the error if the caller can correct the
// error. A closed node, a client that is gone and a deadline that has passed have details of their own. Other
// errors are logged at a limited rate, and not shown.
func (a *api) sendError(w http.ResponseWriter, r *http.Request, err error) {
	if noEnd, ok := errors.AsType[*httplimit.ErrNoEnd](err); ok {
		err = refuseNoEnd(noEnd.Limit, r.URL.Path)
	}
	var told *refusal
	switch {
	case errors.As(err, &told):
	case errors.Is(err, weir.ErrInvalid):
		told = &refusal{http.StatusBadRequest, withoutTypes.Replace(err.Error())}
		if errors.Is(err, publish.ErrFull) {
			told.status = http.StatusInsufficientStorage
		}
	case errors.Is(err, weir.ErrClosed):
		told = &refusal{http.StatusServiceUnavailable, "the node is closed: ask another node"}
	case errors.Is(err, context.Canceled):
		told = &refusal{httplimit.StatusClientGone, "the client is gone"}
	case errors.Is(err, context.DeadlineExceeded):
		told = &refusal{http.StatusGatewayTimeout, "the other nodes did not answer in time: ask again"}
	default:
		if unlogged, due := a.failed.Due(time.Now()); due {
			a.log.Error("a request to the admin API failed", "method", r.Method, "url_path", r.URL.Path, "error", err, "unlogged", unlogged)
		}
		told = &refusal{http.StatusInternalServerError, "the request failed: the log of this node has the reason"}
	}
	text, _ := json.Marshal(httplimit.Problem{Type: "about:blank", Title: cmp.Or(http.StatusText(told.status), "Client Closed Request"), Status: told.status, Detail: told.detail})
	sendBody(w, told.status, "application/problem+json", append(text, '\n'))
}

// withoutTypes turns the text of a weir.ErrInvalid into a detail.
var withoutTypes = strings.NewReplacer(weir.ErrInvalid.Error()+" Block: ", "", weir.ErrInvalid.Error()+" ", "", "\n", "; ")

// currentRules returns the current rules, and a refusal with 404 on a node without rules.
func (a *api) currentRules() (*rules.Snapshot, error) {
	if a.book == nil {
		return nil, refuse(http.StatusNotFound, "this node has no rules")
	}
	return a.book.Current(), nil
}

// findLimit returns the limit of a name. The refusal of an unknown name suggests known names.
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
