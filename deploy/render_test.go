//go:build render

package deploy

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write testdata/rendered")

// values contains chart values that override the defaults.
type values = map[string]any

func readYAML(file string) (v values, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return v, yaml.Unmarshal(text, &v)
}

// kubeVersion is the Kubernetes release for which charts are rendered.
var kubeVersion = chartutil.KubeVersion{Version: "v1.34.0", Major: "1", Minor: "34"}

// helm renders the chart, and returns the objects and the notes.
func helm(given values) (objects, notes string, err error) {
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

// installations returns the values with which the chart is rendered, by name.
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

func kustomize(t *testing.T, folder string) string {
	t.Helper()
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	require.NoError(t, err)
	text, err := all.AsYaml()
	require.NoError(t, err)
	return string(text)
}

func TestHelmAndKustomizeRenderCommittedManifests(t *testing.T) {
	want := map[string]string{digestFile: digest(t)}
	for _, name := range []string{"server", "snapshots", "sidecar", "embedded"} {
		want["kustomize/"+name+".yaml"] = kustomize(t, "kustomize/"+name)
	}
	for name, v := range installations(t) {
		objects, notes, err := helm(v)
		require.NoError(t, err)
		require.Contains(t, notes, "find each other")
		want["helm/"+name+".yaml"] = objects
	}
	if *update {
		require.NoError(t, os.RemoveAll(renderedFolder))
		for name, text := range want {
			file := filepath.Join(renderedFolder, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		}
	}
	got := make(map[string]string)
	for name := range files(t, renderedFolder) {
		text, err := os.ReadFile(filepath.Join(renderedFolder, name))
		require.NoError(t, err)
		got[filepath.ToSlash(name)] = string(text)
	}
	require.Equal(t, want, got, toRender)
}

func TestChartPassesHelmLint(t *testing.T) {
	for name, v := range installations(t) {
		for _, m := range lint.AllWithKubeVersion(chartFolder, v, "default", &kubeVersion).Messages {
			require.Less(t, m.Severity, support.WarningSev, "%s: %v", name, m)
		}
	}
}

func TestInvalidValuesAreRefused(t *testing.T) {
	image := values{"repository": "registry.example.com/weir"}
	for says, v := range map[string]values{
		"mode":                   {"mode": "daemon"},
		"'replicas' not allowed": {"replicas": 3},
		"replicaCount":           {"replicaCount": "3"},
		"checksFrom":             {"networkPolicy": values{"checksFrom": []any{}}}, // would admit everyone
		"ports/peers":            {"ports": values{"peers": 70000}},
		"extraArgs":              {"extraArgs": []any{"replicas=2"}},
		"snapshots/every":        {"snapshots": values{"every": "often"}},
		"snapshots/size":         {"snapshots": values{"size": "much"}},
		"snapshots/bucket":       {"snapshots": values{"bucket": "s3://key:secret@counts/production"}},
		"/snapshots/bucket":      {"snapshots": values{"bucket": "counts/production"}},
		"networkPolicy/egress/":  {"networkPolicy": values{"egress": []any{values{"to": []any{}}}}}, // everywhere
		"networkPolicy.egress: set rules that allow connections to the bucket": {"image": image, "snapshots": values{"enabled": true, "bucket": "s3://counts"}},
		"resources": {"resources": values{"requests": nil}},
		"image.repository: name where you pushed the image": nil,
		"app.image: name the image":                         {"mode": "sidecar", "image": image},
		"create a ServiceMonitor for the app":               {"mode": "embedded", "app": values{"image": "a"}, "monitoring": values{"serviceMonitor": values{"enabled": true}}},
		"ipFamilyPolicy":                                    {"service": values{"ipFamilyPolicy": "Both"}},
		"interval":                                          {"monitoring": values{"serviceMonitor": values{"interval": "often"}}},
		"name the ConfigMap":                                {"envoy": values{"enabled": true}, "image": image},
		"sharedSecret":                                      {"sharedSecret": ""},
		"autoscaling.maxReplicas is below":                  {"image": image, "autoscaling": values{"enabled": true, "minReplicas": 3, "maxReplicas": 2}},
		"expect is above autoscaling.minReplicas":           {"image": image, "autoscaling": values{"enabled": true}, "expect": 4},
		"autoscaling/targetCPU":                             {"autoscaling": values{"targetCPU": "70%"}},
		"maxUnavailable":                                    {"podDisruptionBudget": values{"maxUnavailable": 0}},
		"'readOnly' not allowed":                            {"app": values{"readOnly": true}},
		"networkPolicy/metricsFrom/":                        {"networkPolicy": values{"metricsFrom": []any{values{}}}}, // would admit everyone, too
	} {
		_, _, err := helm(v)
		require.ErrorContains(t, err, says, "%v", v)
	}
}
