package envoylimit

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
)

// The configurations have the forms of the documents, examples and tests of
// envoyproxy/ratelimit that other tests do not cover.
func TestConfigurationsOfEnvoyproxyRatelimitAreAccepted(t *testing.T) {
	for about, text := range map[string]string{
		"a value beside any value":       "[{key: table, value: orders, rate_limit: {unit: hour, requests_per_unit: 50}}, {key: table, rate_limit: {unit: minute, requests_per_unit: 5}}]",
		"what limits nothing":            "[{key: a, value: b}, {key: a, rate_limit: {unit: year, requests_per_unit: 1}}]",
		"metadata on a level below":      "[{key: a, descriptors: [{key: c, rate_limit: {unit: month, requests_per_unit: 1}, metadata: {name: c}}]}]",
		"metrics":                        "[{key: a, value_to_metric: true, descriptors: [{key: b, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}]}]",
		"patterns without one count":     "[{key: a, value: b*, share_threshold: false, rate_limit: {unit: day, requests_per_unit: 1}}]",
		"names that YAML knows":          "[{key: 5, rate_limit: {name: 1, unit: day, requests_per_unit: 1}}, {key: false, rate_limit: {replaces: [{name: 1}], unit: day, requests_per_unit: 1}}]",
		"descriptors without any":        "",
		"descriptors below, without any": "[{key: a, rate_limit: {unit: day, requests_per_unit: 1}, descriptors: }]",
	} {
		cfg, err := Parse("f.yaml", []byte("domain: 007\ndescriptors: "+text))
		require.NoError(t, err, about)
		require.Equal(t, []string{"007"}, cfg.Domains())
	}
}

const routed = `
domain: d
descriptors:
- {key: one, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}, metadata: {to: {cluster: one, port: 80}, first: yes}}
- {key: two, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}, metadata: {to: {cluster: two, zone: b}}}
- {key: all, rate_limit: {unit: hour, requests_per_unit: 100}, metadata: {to: text, limits: [all, 1, true, null]}}
- {key: banned, rate_limit: {unit: hour, requests_per_unit: 0}, metadata: {banned: true}}
`

func TestResponseHasMetadataOfPassedLimits(t *testing.T) {
	s := serviceOf(t, testnode.Start(t, weir.Config{}), routed, Options{Metadata: true})
	c := clientOf(t, s)
	told := func(keys ...string) any {
		req := request()
		for _, key := range keys {
			req.Descriptors = append(req.Descriptors, descriptorOf(key, ""))
		}
		return c.send(req).DynamicMetadata.AsMap()["metadata"]
	}
	require.Equal(t, map[string]any{"to": map[string]any{"cluster": "one", "port": 80.0, "zone": "b"}, "first": "yes"}, told("one", "two"), "maps are merged, and what comes first stays")
	require.Equal(t, map[string]any{"to": map[string]any{"cluster": "two", "zone": "b"}}, told("one", "two"), "one is used up")
	require.Nil(t, told("one", "two"))
	require.Nil(t, told("banned"))
	require.Equal(t, map[string]any{"to": "text", "limits": []any{"all", 1.0, true, nil}}, told("all", "two"))
	require.Nil(t, told("other"))
	r := c.ask(hits(7, "all", ""))
	require.Equal(t, 7.0, r.DynamicMetadata.AsMap()["descriptors"].([]any)[0].(map[string]any)["hitsAddend"])

	for _, d := range s.current.Load().domains["d"].limits {
		if d.path == "d.one" {
			require.Equal(t, map[string]any{"to": map[string]any{"cluster": "one", "port": 80.0}, "first": "yes"}, d.metadata.AsMap(), "the configuration is as it was")
		}
	}
	require.Nil(t, clientOf(t, serviceOf(t, testnode.Start(t, weir.Config{}), routed, Options{})).ask(descriptorOf("one", "")).DynamicMetadata)
}

func TestMetadataWithoutEffectIsRefused(t *testing.T) {
	const head = "domain: d\ndescriptors:\n"
	for _, c := range []struct{ about, text, want string }{
		{"without a limit", head + "- {key: a, metadata: {b: c}}", "f.yaml:3:22: metadata is for a rate_limit, and this descriptor has none: descriptors below do not inherit it, so write it beside the rate_limit"},
		{"no map", head + "- {key: a, metadata: b, rate_limit: {unlimited: true}}", "f.yaml:3:22: metadata is a text: use a map"},
		{"a number that is none", head + "- {key: a, metadata: {b: .nan}, rate_limit: {unlimited: true}}", "f.yaml:3:26: b is .nan: use a finite number, or put it in quotes"},
	} {
		_, err := Parse("f.yaml", []byte(c.text))
		require.EqualError(t, err, c.want, c.about)
	}
}
