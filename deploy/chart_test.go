package deploy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const chartFolder = "helm/weir"

// A chart has what it renders: it is packed without the rest of the project.
func TestTheChartsCopiesAreThoseOfContrib(t *testing.T) {
	for _, name := range []string{"weir.rules.yaml", "dashboard.json"} {
		want, err := os.ReadFile(filepath.Join("../contrib/prometheus", name))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(chartFolder, "files", name))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "cp contrib/prometheus/%s deploy/helm/weir/files/", name)
	}
}

func TestTheChartMonitorsIfToldTo(t *testing.T) {
	m, err := read(rendered(t, "helm/envoy"))
	require.NoError(t, err)
	monitors := m.of("ServiceMonitor")
	require.Len(t, monitors, 1)
	monitor := monitors[0]
	require.Equal(t, "prometheus", monitor.Metadata.Labels["release"])
	var monitored []*object
	for _, s := range m.of("Service") {
		if selects(monitor.Spec.Selector["matchLabels"].(map[string]any), s.Metadata.Labels) {
			monitored = append(monitored, s)
		}
	}
	require.Len(t, monitored, 1, "each node is scraped once")
	require.Equal(t, "limits-weir", monitored[0].Metadata.Labels[monitor.Spec.JobLabel])
	require.Equal(t, monitored[0].Spec.Ports[0].Name, monitor.Spec.Endpoints[0].Port)
	require.Equal(t, 8082, monitored[0].Spec.Ports[0].Port)
	require.NotContains(t, m.workload(t).Spec.Template.Metadata.Annotations, "prometheus.io/scrape", "each node is scraped once")

	alerts, err := os.ReadFile("../contrib/prometheus/weir.rules.yaml")
	require.NoError(t, err)
	var want struct{ Groups any }
	require.NoError(t, yaml.Unmarshal(alerts, &want))
	require.Equal(t, want.Groups, m.of("PrometheusRule")[0].Spec.Groups)
	dashboard, err := os.ReadFile("../contrib/prometheus/dashboard.json")
	require.NoError(t, err)
	configMaps := m.of("ConfigMap")
	i := slices.IndexFunc(configMaps, func(c *object) bool { return c.Metadata.Labels["grafana_dashboard"] == "1" })
	require.GreaterOrEqual(t, i, 0)
	require.JSONEq(t, string(dashboard), configMaps[i].Data["weir.json"])

	require.NotContains(t, string(rendered(t, "helm/default")), "monitoring.coreos.com", "nothing of it is there without the operator")
}

func TestServicesHaveTheFamiliesThatAreAskedFor(t *testing.T) {
	m, err := read(rendered(t, "helm/envoy"))
	require.NoError(t, err)
	services := m.of("Service")
	require.Len(t, services, 3)
	for _, s := range services {
		if strings.HasSuffix(s.Metadata.Name, "-peers") {
			require.Empty(t, s.Spec.IPFamilyPolicy, "nodes advertise their pods' own family")
			continue
		}
		require.Equal(t, "PreferDualStack", s.Spec.IPFamilyPolicy, s.Metadata.Name)
		require.Equal(t, []string{"IPv6", "IPv4"}, s.Spec.IPFamilies, s.Metadata.Name)
	}
}
