package admin

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// UsageFields are the names of the header fields in which a proxy describes the caller of GET /v1/usage. The
// proxy must overwrite these fields, or append to the Client field. User, APIKey and Tier are not read without a
// name.
type UsageFields struct {
	Client             string // field with the address, in the form of X-Forwarded-For; X-Forwarded-For if empty
	Hops               int    // place of the address from the right; 1 if zero
	User, APIKey, Tier string
}

// usage returns the limits of the caller that header fields describe. The caller may write the query, because
// the query does not select the caller.
func (a *api) usage(r *request) (int, any, error) {
	of := rules.Request{Method: http.MethodGet}
	var path string
	if err := r.parameters(field{name: "method", into: &of.Method}, field{name: "path", into: &path}); err != nil {
		return 0, nil, err
	}
	if a.usageFields == nil {
		return 0, nil, refuse(http.StatusNotFound, "this address does not show usage: use the -checks of a weir serve with -usage")
	}
	of.Path, _, _ = strings.Cut(cmp.Or(path, "/"), "?")
	of.Host = cmp.Or(r.Header.Get(forwardedHostField), r.Host)
	f := a.usageFields
	if err := a.readForwarded(&of, r, cmp.Or(f.Client, forwardedForField), cmp.Or(f.Hops, 1)); err != nil {
		return 0, nil, err
	}
	if path == "" {
		of.Path = ""
	}
	of.User, of.APIKey, of.Tier = httplimit.HeaderValue(f.User)(r.Request), httplimit.HeaderValue(f.APIKey)(r.Request), httplimit.HeaderValue(f.Tier)(r.Request)
	if r.rules.Block(&of) != nil {
		return 0, nil, refuse(http.StatusForbidden, "requests of this client are denied")
	}
	u, err := a.lenient.UsageOf(r.Context(), &of)
	return http.StatusOK, u, err
}
