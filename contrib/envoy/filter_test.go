package envoylimit

import (
	"encoding/json"
	"testing"

	extauthz "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weir-go/weir/internal/snippets"
)

// docs/proxies.md has Envoy ask over HTTP. What Envoy does not know it would refuse.
func TestTheDocumentedFilterIsEnvoys(t *testing.T) {
	all, err := snippets.All()
	require.NoError(t, err)
	read := 0
	for _, s := range all {
		if s.Language != "yaml" || s.Key() != "http_filters" {
			continue
		}
		read++
		var file struct {
			Filters []struct {
				Config map[string]any `yaml:"typed_config"`
			} `yaml:"http_filters"`
		}
		require.NoError(t, yaml.Unmarshal([]byte(s.Text), &file), s.At())
		require.Len(t, file.Filters, 1)
		config := file.Filters[0].Config
		require.Equal(t, "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz", config["@type"])
		delete(config, "@type")
		text, err := json.Marshal(config)
		require.NoError(t, err)
		var filter extauthz.ExtAuthz
		require.NoError(t, protojson.Unmarshal(text, &filter), s.At())
		require.NoError(t, filter.ValidateAll(), s.At())
		require.Equal(t, "/v1/ext_authz", filter.GetHttpService().GetPathPrefix())
	}
	require.Equal(t, 1, read)
}
