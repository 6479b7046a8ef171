package deploy

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

const chartFolder = "helm/weir"

// values are what is given to the chart, over its own.
type values = map[string]any

func readYAML(file string) (v values, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return v, yaml.Unmarshal(text, &v)
}

// kubeVersion is the release that charts are rendered for.
var kubeVersion = chartutil.KubeVersion{Version: "v1.34.0", Major: "1", Minor: "34"}

// rendered has Helm render the chart, and returns the objects and the notes.
func rendered(given values) (objects, notes string, err error) {
	c, err := loader.Load(chartFolder)
	if err != nil {
		return "", "", err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = kubeVersion
	all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: "limits", Namespace: "default", IsInstall: true, Revision: 1}, capabilities)
	if err != nil {
		return "", "", err
	}
	files, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		return "", "", err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		switch text := strings.TrimSpace(files[name]); {
		case filepath.Base(name) == "NOTES.txt":
			notes = text
		case text != "":
			objects += "---\n" + strings.TrimPrefix(text, "---\n") + "\n"
		}
	}
	return strings.TrimPrefix(objects, "---\n"), notes, nil
}

// installations are values that the chart is held with, by name.
func installations(t *testing.T) map[string]values {
	t.Helper()
	files, err := filepath.Glob("testdata/values/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	all := map[string]values{"default": {"image": values{"repository": "registry.example.com/weir"}}}
	for _, file := range files {
		v, err := readYAML(file)
		require.NoError(t, err)
		all[strings.TrimSuffix(filepath.Base(file), ".yaml")] = v
	}
	return all
}

func TestTheChartIsWhatKubernetesTakes(t *testing.T) {
	for name, v := range installations(t) {
		t.Run(name, func(t *testing.T) {
			text, notes, err := rendered(v)
			require.NoError(t, err)
			require.Contains(t, notes, "find each other")
			sound(t, []byte(text))
		})
	}
}

func TestHelmFindsNothingWrongWithTheChart(t *testing.T) {
	for name, v := range installations(t) {
		for _, m := range lint.AllWithKubeVersion(chartFolder, v, "default", &kubeVersion).Messages {
			require.Less(t, m.Severity, support.WarningSev, "%s: %v", name, m)
		}
	}
}

func TestWrongValuesAreRefused(t *testing.T) {
	image := values{"repository": "registry.example.com/weir"}
	for says, v := range map[string]values{
		"mode":                   {"mode": "daemon"},
		"'replicas' not allowed": {"replicas": 3},
		"replicaCount":           {"replicaCount": "3"},
		"checksFrom":             {"networkPolicy": values{"checksFrom": []any{}}}, // would admit everybody
		"ports/peers":            {"ports": values{"peers": 70000}},
		"extraArgs":              {"extraArgs": []any{"replicas=2"}},
		"resources":              {"resources": values{"requests": nil}},
		"image.repository: name where you pushed the image": nil,
		"app.image: name the image":                         {"mode": "sidecar", "image": image},
		"a ServiceMonitor of its own":                       {"mode": "embedded", "app": values{"image": "a"}, "monitoring": values{"serviceMonitor": values{"enabled": true}}},
		"ipFamilyPolicy":                                    {"service": values{"ipFamilyPolicy": "Both"}},
		"interval":                                          {"monitoring": values{"serviceMonitor": values{"interval": "often"}}},
		"name the ConfigMap":                                {"envoy": values{"enabled": true}, "image": image},
		"sharedSecret":                                      {"sharedSecret": ""},
		"maxUnavailable":                                    {"podDisruptionBudget": values{"maxUnavailable": 0}},
		"'readOnly' not allowed":                            {"app": values{"readOnly": true}},
		"networkPolicy/metricsFrom/":                        {"networkPolicy": values{"metricsFrom": []any{values{}}}}, // everybody, too
	} {
		_, _, err := rendered(v)
		require.ErrorContains(t, err, says, "%v", v)
	}
}

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
	text, _, err := rendered(installations(t)["envoy"])
	require.NoError(t, err)
	m, err := read([]byte(text))
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

	text, _, err = rendered(installations(t)["default"])
	require.NoError(t, err)
	require.NotContains(t, text, "monitoring.coreos.com", "nothing of it is there without the operator")
}

func TestServicesHaveTheFamiliesThatAreAskedFor(t *testing.T) {
	text, _, err := rendered(installations(t)["envoy"])
	require.NoError(t, err)
	m, err := read([]byte(text))
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
