package deploy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
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
	require.Len(t, m.monitors, 1)
	monitor := m.monitors[0]
	require.Equal(t, "prometheus", monitor.Labels["release"])
	selector := labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels)
	var monitored []*corev1.Service
	for _, s := range m.services {
		if selector.Matches(labels.Set(s.Labels)) {
			monitored = append(monitored, s)
		}
	}
	require.Len(t, monitored, 1, "each node is scraped once")
	require.Equal(t, "limits-weir", monitored[0].Labels[monitor.Spec.JobLabel])
	require.Equal(t, monitored[0].Spec.Ports[0].Name, monitor.Spec.Endpoints[0].Port)
	require.EqualValues(t, 8082, monitored[0].Spec.Ports[0].Port)
	require.NotContains(t, m.deployments[0].Spec.Template.Annotations, "prometheus.io/scrape", "each node is scraped once")

	alerts, err := os.ReadFile("../contrib/prometheus/weir.rules.yaml")
	require.NoError(t, err)
	var want monitoringv1.PrometheusRuleSpec
	require.NoError(t, yaml.UnmarshalStrict(alerts, &want))
	require.Equal(t, want, m.rules[0].Spec)
	dashboard, err := os.ReadFile("../contrib/prometheus/dashboard.json")
	require.NoError(t, err)
	i := slices.IndexFunc(m.configMaps, func(c *corev1.ConfigMap) bool { return c.Labels["grafana_dashboard"] == "1" })
	require.GreaterOrEqual(t, i, 0)
	require.JSONEq(t, string(dashboard), m.configMaps[i].Data["weir.json"])

	require.NotContains(t, string(rendered(t, "helm/default")), "monitoring.coreos.com", "nothing of it is there without the operator")
}

// Weir expects the least number of replicas: fewer are a fault, and more are the autoscaler's.
func TestAutoscalerOwnsTheNumberOfReplicas(t *testing.T) {
	for name, c := range map[string]struct {
		least, most int32
		expect      string
	}{"helm/autoscaling": {2, 12, "2"}, "helm/autoscaling-snapshots": {3, 9, "3"}} {
		m, err := read(rendered(t, name))
		require.NoError(t, err)
		w := m.workloads()[0]
		require.Nil(t, w.Spec.Replicas, "%s: an upgrade would reset the autoscaler", name)
		require.Equal(t, c.expect, w.options["expect"], name)
		require.Len(t, m.autoscalers, 1)
		require.Equal(t, []int32{c.least, c.most}, []int32{*m.autoscalers[0].Spec.MinReplicas, m.autoscalers[0].Spec.MaxReplicas}, name)
	}
}

func TestServicesHaveTheFamiliesThatAreAskedFor(t *testing.T) {
	m, err := read(rendered(t, "helm/envoy"))
	require.NoError(t, err)
	require.Len(t, m.services, 3)
	for _, s := range m.services {
		if strings.HasSuffix(s.Name, "-peers") {
			require.Nil(t, s.Spec.IPFamilyPolicy, "nodes advertise their pods' own family")
			continue
		}
		require.Equal(t, corev1.IPFamilyPolicyPreferDualStack, *s.Spec.IPFamilyPolicy, s.Name)
		require.Equal(t, []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}, s.Spec.IPFamilies, s.Name)
	}
}
