//go:build render

package deploy

import (
	"bytes"
	"io"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	"github.com/yannh/kubeconform/pkg/validator"
	"sigs.k8s.io/yaml"
)

// operators contains the types of Prometheus' operator, whose schemas are not in
// testdata.
var operators = map[string]any{"ServiceMonitor": new(monitoringv1.ServiceMonitor), "PrometheusRule": new(monitoringv1.PrometheusRule)}

// requireConforming requires that objects conform to the schemas of Kubernetes and to the
// types of Prometheus' operator, without unknown fields.
func requireConforming(t *testing.T, text []byte) {
	t.Helper()
	v, err := validator.New([]string{"testdata/schemas/{{.ResourceKind}}{{.KindSuffix}}.json"}, validator.Opts{Strict: true, SkipKinds: map[string]struct{}{"ServiceMonitor": {}, "PrometheusRule": {}}})
	require.NoError(t, err)
	results := v.ValidateWithContext(t.Context(), "manifests", io.NopCloser(bytes.NewReader(text)))
	require.NotEmpty(t, results)
	for _, r := range results {
		require.Contains(t, []validator.Status{validator.Valid, validator.Skipped}, r.Status, "%v\n%s", r.Err, r.Resource.Bytes)
	}
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		var o object
		require.NoError(t, yaml.Unmarshal([]byte(part), &o))
		if into := operators[o.Kind]; into != nil {
			require.NoError(t, yaml.UnmarshalStrict([]byte(part), into), "%s", part)
		}
	}
}

func TestRenderedManifestsConformToSchemas(t *testing.T) {
	for name := range allManifests(t) {
		t.Run(name, func(t *testing.T) { requireConforming(t, rendered(t, name)) })
	}
}
