package envoylimit

import (
	"os"
	"testing"

	extauthz "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/weir-go/weir/internal/snippets"
)

func TestDocumentedConfigurationsParse(t *testing.T) {
	all, err := snippets.All()
	require.NoError(t, err)
	read := 0
	for _, s := range all {
		if s.Language == "yaml" && s.Key() == "domain" {
			read++
			_, err := Parse(s.Position(), []byte(s.Text))
			require.NoError(t, err)
		}
	}
	require.NotZero(t, read)
}

// docs/proxies.md names the file, which configures Envoy to use HTTP. Envoy would refuse unknown
// fields.
func TestDocumentedFilterIsValidForEnvoy(t *testing.T) {
	const name = "../../examples/proxies/envoy.yaml"
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	var file struct {
		Filters []struct {
			Config map[string]any `yaml:"typed_config"`
		} `yaml:"http_filters"`
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	require.Len(t, file.Filters, 1)
	config := file.Filters[0].Config
	require.Equal(t, "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz", config["@type"])
	delete(config, "@type")
	var filter extauthz.ExtAuthz
	readProto(t, name, config, &filter)
	require.NoError(t, filter.ValidateAll())
	require.Equal(t, "/v1/ext_authz", filter.GetHttpService().GetPathPrefix())
}
