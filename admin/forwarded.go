package admin

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// A proxy asks by a request of its own whether it may forward a request of a client. The proxy describes the
// client's request in header fields, and also sends the header fields of the client. Therefore a client could
// forge each describing field that the proxy does not overwrite. For that reason each of these fields must
// occur exactly once, except the field with the addresses of the client and of proxies, which is read from
// the right. A request that lacks any of these fields is answered with 400, and never admitted. Only a field
// that the parameter user, api_key, tier or critical names may be missing. It counts as missing if it occurs
// twice.

const (
	forwardedForField  = "X-Forwarded-For"
	forwardedHostField = "X-Forwarded-Host"
	statusField        = "X-Weir-Status" // status for the client if auth_request denies
	maxHops            = 16
)

// forwardAuth answers Traefik's ForwardAuth and Caddy's forward_auth, with 200 or with the denial for the
// client.
func (a *api) forwardAuth(r *request) (int, any, error) {
	p, err := a.decideForwarded(r, "X-Forwarded-Uri", "X-Forwarded-Method")
	return p.answer(err)
}

// authRequest answers nginx's auth_request, which accepts only 401 and 403 as denials. The answer is 200,
// or 403 with the status for the client in X-Weir-Status.
func (a *api) authRequest(r *request) (int, any, error) {
	p, err := a.decideForwarded(r, "X-Original-Uri", "X-Original-Method")
	if err != nil || p.status == http.StatusOK {
		return http.StatusOK, nil, err
	}
	p.header.Set(statusField, strconv.Itoa(p.status))
	return http.StatusForbidden, nil, nil
}

// decideForwarded decides on the request that the header fields of r describe. Parameters of r name some
// of the fields.
func (a *api) decideForwarded(r *request, uriField, methodField string) (*proxied, error) {
	var (
		client, user, apiKey, tier, critical, ambiguous string
		hops                                            int64 = 1
	)
	if err := r.parameters(
		field{name: "client", into: &client}, field{name: "hops", into: &hops, least: 1, most: maxHops},
		field{name: "user", into: &user}, field{name: "api_key", into: &apiKey}, field{name: "tier", into: &tier},
		field{name: "critical", into: &critical}, field{name: "ambiguous_paths", into: &ambiguous},
	); err != nil {
		return nil, err
	}
	var wrong faults
	if ambiguous != "" && ambiguous != "refuse" {
		wrong.add("ambiguous_paths is %q: use refuse, or leave it out", shorten(ambiguous))
	}
	uri, method, host := wrong.readSingle(r.Header, uriField), wrong.readSingle(r.Header, methodField), wrong.readSingle(r.Header, forwardedHostField)
	if err := wrong.err(); err != nil {
		return nil, err
	}
	target, err := url.ParseRequestURI(uri)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%s is %q: the proxy has to set it to the target of the request, with its escapes", uriField, shorten(uri))
	}
	of := rules.Request{Method: method, Host: cmp.Or(target.Host, host)}
	of.SetURL(target)
	if err := a.readForwarded(&of, r, cmp.Or(client, forwardedForField), int(hops)); err != nil {
		return nil, err
	}
	of.User, of.APIKey, of.Tier = httplimit.HeaderValue(user)(r.Request), httplimit.HeaderValue(apiKey)(r.Request), httplimit.HeaderValue(tier)(r.Request)
	of.Critical = critical != "" && httplimit.HeaderValue(critical)(r.Request) == "true"
	if ambiguous != "" {
		return decideProxied(a.strict, r, of), nil
	}
	return decideProxied(a.lenient, r, of), nil
}

// extAuthzPath is the prefix that Envoy puts before the path of the client's request.
const extAuthzPath = "/v1/ext_authz/"

// extAuthzTarget returns the escaped path of the client's request, if Envoy asks.
func extAuthzTarget(r *http.Request) (path string, ok bool) {
	var of rules.Request
	of.SetURL(r.URL)
	path, ok = strings.CutPrefix(of.Path, strings.TrimSuffix(extAuthzPath, "/"))
	return path, ok && (path == "*" || strings.HasPrefix(path, "/"))
}

// extAuthz answers Envoy's ext_authz, with 200 or with the denial for the client. r has the method and
// the host of the client's request, and its path after extAuthzPath. The query of r is the query of the
// client's request, so extAuthz has no parameters.
func (a *api) extAuthz(r *request) (int, any, error) {
	of := rules.Request{Method: r.Method, Host: r.Host, Path: r.rest, Query: r.URL.RawQuery}
	if err := a.readForwarded(&of, r, forwardedForField, 1); err != nil {
		return 0, nil, err
	}
	return decideProxied(a.lenient, r, of).answer(nil)
}

// proxied is the Exchange of a request that a proxy describes. It keeps the denial until the operation
// sends it.
type proxied struct {
	request rules.Request
	accept  []string
	header  http.Header // header of the answer to the proxy
	status  int         // status for the client; 200 if the request is admitted

	contentType string // content type of the denial; empty if there is none
	body        []byte
}

// decideProxied decides on a request, and sets the header fields for the client.
func decideProxied(m *httplimit.Middleware, r *request, described rules.Request) *proxied {
	p := &proxied{request: described, accept: r.Header["Accept"], header: r.w.Header(), status: http.StatusOK}
	m.Serve(r.Context(), p)
	return p
}

func (p *proxied) Read(to *rules.Request) { *to = p.request }

func (p *proxied) Decided(*httplimit.Outcome) {}

func (p *proxied) Field(name string) string { return strings.Join(p.header[name], ", ") }

func (p *proxied) SetFields(names, values []string) {
	for i, name := range names {
		p.header[name] = values[i : i+1 : i+1]
	}
}

func (p *proxied) Deny(o *httplimit.Outcome) {
	p.status = o.Status
	p.contentType, p.body = o.Body(p.accept)
}

// answer returns 200 without a body, or the denial for the client.
func (p *proxied) answer(err error) (int, any, error) {
	switch {
	case err != nil:
		return 0, nil, err
	case p.status == http.StatusOK || p.status == httplimit.StatusClientGone:
		return p.status, nil, nil
	}
	return p.status, p, nil
}

// readForwarded reads the parts of a request that all proxies send in the same form: the address of the
// client, which is the n-th address from the right in the given field, and the header fields of the client.
func (a *api) readForwarded(described *rules.Request, r *request, field string, n int) error {
	c := httplimit.FromRight(field, n)
	described.Client = c.FromFields(r.Header, "", false)
	if !described.Client.IsValid() {
		return refuse(http.StatusBadRequest, "%s has no address at place %d from the right: the proxy has to set it to the client's address, or append that", http.CanonicalHeaderKey(field), n)
	}
	if a.gate != nil && len(a.gate.tokens) > 0 {
		r.Header = r.Header.Clone()   // the server keeps the original
		r.Header.Del("Authorization") // the field authenticates the proxy, and not its client
	}
	described.Header, described.Length = r.Header, -1
	if described.Path == "" || described.Path[0] != '/' && described.Path != "*" {
		return refuse(http.StatusBadRequest, "the path of the request is %q: it must begin with /", shorten(described.Path))
	}
	return nil
}

// readSingle returns the value of a header field, and adds a fault unless the field occurs exactly once.
func (w *faults) readSingle(h http.Header, field string) string {
	lines := h[http.CanonicalHeaderKey(field)]
	switch len(lines) {
	case 1:
		return lines[0]
	case 0:
		w.add("header %q is missing: the proxy has to set it", field)
	default:
		w.add("header %q is set %d times: the proxy has to overwrite what the client sends", field, len(lines))
	}
	return ""
}
