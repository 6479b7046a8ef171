package admin

import (
	"encoding/json"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/snippets"
	"github.com/weir-go/weir/internal/strictyaml"
)

// These types are the parts of OpenAPI and JSON Schema that the document uses. Other fields make the test
// fail, because it could not check them.
type (
	apiDocument struct {
		OpenAPI    string                              `json:"openapi"`
		Info       map[string]string                   `json:"info"`
		Security   []map[string][]string               `json:"security"`
		Paths      map[string]map[string]*apiOperation `json:"paths"`
		Components struct {
			Schemas   map[string]*snippets.Schema `json:"schemas"`
			Responses map[string]*apiResponse     `json:"responses"`
			Security  map[string]any              `json:"securitySchemes"`
		} `json:"components"`
	}
	apiOperation struct {
		ID         string                  `json:"operationId"`
		Summary    string                  `json:"summary"`
		Parameters []*apiParameter         `json:"parameters"`
		Body       *apiBody                `json:"requestBody"`
		Responses  map[string]*apiResponse `json:"responses"`
	}
	apiParameter struct {
		Name        string           `json:"name"`
		In          string           `json:"in"`
		Description string           `json:"description"`
		Required    bool             `json:"required"`
		Schema      *snippets.Schema `json:"schema"`
	}
	apiBody struct {
		Required bool                 `json:"required"`
		Content  map[string]*apiMedia `json:"content"`
	}
	apiResponse struct {
		Ref         string               `json:"$ref"`
		Description string               `json:"description"`
		Headers     map[string]any       `json:"headers"`
		Content     map[string]*apiMedia `json:"content"`
	}
	apiMedia struct {
		Schema *snippets.Schema `json:"schema"`
	}
)

func readAPI(t *testing.T) *apiDocument {
	d := new(apiDocument)
	require.NoError(t, snippets.ReadSchema(OpenAPI(), d))
	return d
}

// resolved returns the response that r refers to, or r.
func (d *apiDocument) resolved(r *apiResponse) *apiResponse {
	if r.Ref != "" {
		return d.Components.Responses[path.Base(r.Ref)]
	}
	return r
}

// A reader of JSON uses the last of two fields with the same name.
func TestOpenAPIHasNoFieldTwice(t *testing.T) {
	document, err := strictyaml.Parse("openapi.json", OpenAPI())
	require.NoError(t, err)
	document.Root().Decode()
	require.NoError(t, document.Err())
}

func TestOpenAPIHasExactlyTheRoutes(t *testing.T) {
	d := readAPI(t)
	require.Equal(t, "3.1.0", d.OpenAPI)
	var documented, served []string
	ids := make(map[string]bool)
	for path, operations := range d.Paths {
		for method, o := range operations {
			documented = append(documented, strings.ToUpper(method)+" "+strings.Split(path, "{")[0])
			require.False(t, ids[o.ID], o.ID)
			ids[o.ID] = true
			require.NotEmpty(t, o.Summary)
			for status, r := range o.Responses {
				require.NotNil(t, d.resolved(r), "%s %s %s", method, path, status)
			}
		}
	}
	for _, r := range routes {
		served = append(served, r.method+" "+r.path)
	}
	require.ElementsMatch(t, served, documented)
	for _, security := range d.Security {
		for name := range security {
			require.Contains(t, d.Components.Security, name)
		}
	}
}

// The error about an unknown parameter or field lists the known names, so the test sends an unknown name to
// each operation.
func TestOpenAPIHasParametersAndFields(t *testing.T) {
	d, a := readAPI(t), newTestAPI(t)
	known := regexp.MustCompile(`known are ([a-z_, ]+)|there are none`)
	for path, operations := range d.Paths {
		if strings.HasPrefix(path, extAuthzPath) {
			continue // the query is that of a client's request, so that no parameter is unknown
		}
		for method, o := range operations {
			var documented, read []string
			asked := strings.ReplaceAll(path, "{name}", "x")
			body := ""
			if o.Body != nil {
				schema := d.Components.Schemas[base(o.Body.Content["application/json"].Schema.Ref)]
				documented = slices.Collect(maps.Keys(schema.Properties))
				body = `{"unknown_to_all_of_them":1}`
				for name := range schema.Properties {
					w := a.ask(strings.ToUpper(method), asked, `{}`)
					require.Equal(t, slices.Contains(schema.Required, name), strings.Contains(w.Body.String(), `field \"`+name+`\" is missing`), "%s %s: %s", method, path, name)
				}
			} else {
				asked += "?unknown_to_all_of_them=1"
				for _, p := range o.Parameters {
					if p.In == "query" {
						documented = append(documented, p.Name)
						w := a.ask(strings.ToUpper(method), strings.Split(asked, "?")[0], "")
						require.Equal(t, p.Required, strings.Contains(w.Body.String(), `parameter \"`+p.Name+`\" is missing`), "%s %s: %s", method, path, p.Name)
					}
				}
			}
			w := a.ask(strings.ToUpper(method), asked, body)
			require.Equal(t, http.StatusBadRequest, w.Code, "%s %s: %s", method, asked, w.Body)
			found := known.FindStringSubmatch(w.Body.String())
			require.NotNil(t, found, w.Body.String())
			if found[1] != "" {
				read = strings.Split(found[1], ", ")
			}
			require.ElementsMatch(t, documented, read, "%s %s", method, path)
		}
	}
}

func TestOpenAPIHasSourceNames(t *testing.T) {
	d := readAPI(t)
	names := []string{weir.Source(0).String()}
	for s := weir.Owner; s.String() != weir.Source(255).String(); s++ {
		names = append(names, s.String())
	}
	require.Equal(t, names, d.Components.Schemas["LimitStatus"].Properties["source"].Enum)
	for _, schema := range []string{"Taken", "Held", "Reserved"} {
		require.Equal(t, names, d.Components.Schemas[schema].Properties["source"].Enum)
	}
	require.Equal(t, names, d.Components.Schemas["Stats"].Properties["decisions"].PropertyNames.Enum)
	require.Equal(t, names, d.Components.Schemas["Totals"].Properties["decisions"].PropertyNames.Enum)
	require.Equal(t, names, d.Components.Schemas["Stats"].Properties["latency"].PropertyNames.Enum)
}

func base(ref string) string { return path.Base(ref) }

// exchange sends a request and checks the response by the document.
func (d *apiDocument) exchange(a *testAPI, method, path, body, pattern string, status int) {
	a.t.Helper()
	w := a.ask(method, path, body)
	require.Equal(a.t, status, w.Code, "%s %s: %s", method, path, w.Body)
	operation := d.Paths[pattern][strings.ToLower(method)]
	require.NotNil(a.t, operation, "%s %s", method, pattern)
	response := operation.Responses[strconv.Itoa(status)]
	require.NotNil(a.t, response, "%s %s answers %d: the document does not have it", method, pattern, status)
	response = d.resolved(response)
	for name := range response.Headers {
		require.NotEmpty(a.t, w.Header().Get(name), name)
	}
	if len(response.Content) == 0 {
		require.Empty(a.t, w.Body.String())
		return
	}
	media := response.Content[w.Header().Get("Content-Type")]
	require.NotNil(a.t, media, "%s %s: %s", method, path, w.Header().Get("Content-Type"))
	var v any
	require.NoError(a.t, json.Unmarshal(w.Body.Bytes(), &v))
	require.NoError(a.t, media.Schema.Check(v, d.Components.Schemas), "%s %s: %s", method, path, w.Body)
}

func TestResponsesConformToOpenAPI(t *testing.T) {
	d, a := readAPI(t), newTestAPI(t)
	const override = `{"limit":"api/burst","key":"u","rate":50,"per":"2s","burst":500,"until":"2999-01-01T00:00:00Z"}`
	for _, c := range []struct {
		method, path, body, pattern string
		status                      int
	}{
		{"POST", "/v1/overrides", override, "/v1/overrides", 200},
		{"POST", "/v1/overrides", `{"limit":"address","key":"1","rate":1}`, "/v1/overrides", 200},
		{"GET", "/v1/overrides", "", "/v1/overrides", 200},
		{"PUT", "/v1/switches", `{"rule":"both","mode":"10%","until":"2999-01-01T00:00:00Z","by":"jo","reason":"an incident"}`, "/v1/switches", 200},
		{"PUT", "/v1/switches", `{"rule":"both","mode":"on"}`, "/v1/switches", 400},
		{"PUT", "/v1/switches", `{"rule":"none","mode":"off"}`, "/v1/switches", 404},
		{"GET", "/v1/switches", "", "/v1/switches", 200},
		{"GET", "/v1/status?key=u&tier=premium", "", "/v1/status", 200},
		{"GET", "/v1/status?user=u&ip=192.0.2.1&header=X-Project:+p", "", "/v1/status", 200},
		{"GET", "/v1/rules", "", "/v1/rules", 200},
		{"GET", "/v1/members", "", "/v1/members", 200},
		{"GET", "/v1/ring", "", "/v1/ring", 200},
		{"GET", "/v1/stats", "", "/v1/stats", 200},
		{"GET", "/v1/totals", "", "/v1/totals", 200},
		{"GET", "/v1/top", "", "/v1/top", 200},
		{"GET", "/v1/top?n=101", "", "/v1/top", 400},
		{"GET", "/openapi.json", "", "/openapi.json", 200},
		{"POST", "/v1/check", `{"key":"a","limit":1,"window_ms":60000,"weight":1,"name":"n"}`, "/v1/check", 200},
		{"POST", "/v1/check", `{"key":"a","limit":1,"window_ms":60000,"weight":1,"name":"n"}`, "/v1/check", 200},
		{"POST", "/v1/check", `{"key":"a","limit":1,"window_ms":60000,"weight":2}`, "/v1/check", 413},
		{"POST", "/v1/check", `{}`, "/v1/check", 400},
		{"POST", "/v1/take", `{"limit":"address","key":"1","units":1}`, "/v1/take", 200},
		{"POST", "/v1/take", `{"limit":"address","key":"2","units":100,"at_most":true}`, "/v1/take", 200},
		{"POST", "/v1/take", `{"limit":"none","key":"1"}`, "/v1/take", 404},
		{"POST", "/v1/peek", `{"limit":"address","key":"1","tier":"premium"}`, "/v1/peek", 200},
		{"POST", "/v1/peek", `{"limit":"address","key":"1","tier":"none"}`, "/v1/peek", 400},
		{"POST", "/v1/peek", `{"limit":"none","key":"1"}`, "/v1/peek", 404},
		{"POST", "/v1/take_all", `{"takes":[{"limit":"address","key":"1","units":1},{"limit":"address","key":"2"}]}`, "/v1/take_all", 200},
		{"POST", "/v1/take_all", `{"takes":[]}`, "/v1/take_all", 400},
		{"POST", "/v1/take_all", `{"takes":[{"limit":"none","key":"1"}]}`, "/v1/take_all", 404},
		{"POST", "/v1/take_all", `{"takes":[{"limit":"address","key":"1","units":1000000000}]}`, "/v1/take_all", 413},
		{"POST", "/v1/take", `{"limit":"address","key":"1","units":1000000000}`, "/v1/take", 413},
		{"POST", "/v1/take", `{"limit":"address","key":"1","tier":"none"}`, "/v1/take", 400},
		{"POST", "/v1/request", `{"path":"/v1/items","user":"u","ip":"192.0.2.1","headers":{"X-Project":"p"}}`, "/v1/request", 200},
		{"GET", "/v1/usage", "", "/v1/usage", 404},
		{"GET", "/v1/usage?limit=api", "", "/v1/usage", 400},
		{"POST", "/v1/request", `{"path":"v1"}`, "/v1/request", 400},
		{"POST", "/v1/debit", `{"limit":"address","key":"1","units":100}`, "/v1/debit", 200},
		{"POST", "/v1/debit", `{"limit":"none","key":"1"}`, "/v1/debit", 404},
		{"POST", "/v1/refund", `{"limit":"address","key":"1","units":100,"soft":false}`, "/v1/refund", 204},
		{"POST", "/v1/refund", `{"limit":"api/burst","key":"1","soft":true}`, "/v1/refund", 400},
		{"POST", "/v1/refund", `{"limit":"none","key":"1"}`, "/v1/refund", 404},
		{"POST", "/v1/hold", `{"limit":"none","key":"1"}`, "/v1/hold", 404},
		{"POST", "/v1/hold", `{"limit":"address","key":"1"}`, "/v1/hold", 400},
		{"POST", "/v1/hold", `{"limit":"address","key":"1","units":1000000000}`, "/v1/hold", 413},
		{"POST", "/v1/renew", `{"limit":"address","key":"1","hold":"x","ttl":"2h"}`, "/v1/renew", 400},
		{"POST", "/v1/release", `{"limit":"none","key":"1","hold":"x"}`, "/v1/release", 404},
		{"POST", "/v1/reserve", `{"limit":"address","key":"3","units":4}`, "/v1/reserve", 200},
		{"POST", "/v1/reserve", `{"limit":"address","key":"3","units":4}`, "/v1/reserve", 200},
		{"POST", "/v1/reserve", `{"limit":"address","key":"3","units":6}`, "/v1/reserve", 413},
		{"POST", "/v1/settle", `{"limit":"address","key":"3","units":6,"reservation":"x"}`, "/v1/settle", 400},
		{"GET", "/v1/forward_auth", "", "/v1/forward_auth", 400},
		{"GET", "/v1/auth_request?hops=0", "", "/v1/auth_request", 400},
		{"GET", "/v1/ext_authz/x", "", "/v1/ext_authz/{path}", 400},
		{"DELETE", "/v1/counts?limit=address&key=1", "", "/v1/counts", 200},
		{"DELETE", "/v1/counts?limit=a&key=1", "", "/v1/counts", 404},
		{"DELETE", "/v1/overrides?limit=address&key=1", "", "/v1/overrides", 204},
		{"PUT", "/v1/switches", `{"rule":"*","mode":"off"}`, "/v1/switches", 200},
		{"GET", "/v1/status?key=u&tier=premium", "", "/v1/status", 200},
		{"POST", "/v1/take", `{"limit":"address","key":"1","units":1}`, "/v1/take", 200},
		{"POST", "/v1/request", `{"path":"/v1/items","user":"u"}`, "/v1/request", 200},
		{"DELETE", "/v1/switches?rule=*", "", "/v1/switches", 204},
		{"PUT", "/v1/blocks", `{"ip":"192.0.2.0/24","until":"2999-01-01T00:00:00Z","by":"jo","reason":"scanner"}`, "/v1/blocks", 200},
		{"PUT", "/v1/blocks", `{"rule":"both","key":"k"}`, "/v1/blocks", 200},
		{"PUT", "/v1/blocks", `{"rule":"none","key":"k"}`, "/v1/blocks", 404},
		{"GET", "/v1/blocks", "", "/v1/blocks", 200},
		{"GET", "/v1/clients?user=u", "", "/v1/clients", 200},
		{"GET", "/v1/clients?ip=192.0.2.7", "", "/v1/clients", 200},
		{"GET", "/v1/clients", "", "/v1/clients", 400},
		{"PUT", "/v1/clients/overrides", `{"user":"u","multiply":2.5,"reason":"import"}`, "/v1/clients/overrides", 200},
		{"DELETE", "/v1/clients/overrides?user=u", "", "/v1/clients/overrides", 200},
		{"DELETE", "/v1/clients/counts?user=u", "", "/v1/clients/counts", 200},
		{"DELETE", "/v1/blocks?ip=192.0.2.0/24", "", "/v1/blocks", 204},
		{"DELETE", "/v1/blocks?id=none", "", "/v1/blocks", 400},
		{"DELETE", "/v1/members/x", "", "/v1/members/{name}", 404},
		{"DELETE", "/v1/members/" + a.node.Members()[0].Name, "", "/v1/members/{name}", 409},
	} {
		d.exchange(a, c.method, c.path, c.body, c.pattern, c.status)
	}
	w := a.ask("GET", "/openapi.json", "")
	require.Equal(t, OpenAPI(), w.Body.Bytes())

	// The schema must also reject wrong answers.
	for _, text := range []string{
		`{"allowed":true,"remaining":-1,"reset_ms":0,"retry_after_s":0}`, `{"allowed":true,"remaining":1,"reset_ms":0}`,
		`{"allowed":true,"remaining":1,"reset_ms":0,"retry_after_s":0,"more":1}`,
	} {
		var v any
		require.NoError(t, json.Unmarshal([]byte(text), &v))
		require.Error(t, d.Components.Schemas["Decision"].Check(v, d.Components.Schemas), text)
	}
}
