package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const chartFolder = "helm/weir"

// values are what is given to the chart, over its own.
type values = map[string]any

// over returns values of which those of the second come first, as Helm merges them.
func over(of, given values) values {
	merged := make(values)
	for name, value := range of {
		merged[name] = value
	}
	for name, value := range given {
		was, isMap := merged[name].(values)
		is, isToo := value.(values)
		switch {
		case value == nil:
			delete(merged, name)
		case isMap && isToo:
			merged[name] = over(was, is)
		default:
			merged[name] = value
		}
	}
	return merged
}

func readYAML(file string) (v values, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return v, yaml.Unmarshal(text, &v)
}

// valid holds values to the chart's schema.
func valid(v values) error {
	text, err := os.ReadFile(filepath.Join(chartFolder, "values.schema.json"))
	if err != nil {
		return err
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("values.schema.json", parsed); err != nil {
		return err
	}
	schema, err := c.Compile("values.schema.json")
	if err != nil {
		return err
	}
	if text, err = json.Marshal(v); err != nil {
		return err
	}
	if parsed, err = jsonschema.UnmarshalJSON(bytes.NewReader(text)); err != nil {
		return err
	}
	return schema.Validate(parsed)
}

// rendered renders the chart with what it uses of Helm, and returns the objects and the
// notes.
func rendered(given values) (objects, notes string, err error) {
	about, err := readYAML(filepath.Join(chartFolder, "Chart.yaml"))
	if err != nil {
		return "", "", err
	}
	own, err := readYAML(filepath.Join(chartFolder, "values.yaml"))
	if err != nil {
		return "", "", err
	}
	all := over(own, given)
	if err := valid(all); err != nil {
		return "", "", err
	}
	chart := make(values) // templates name its fields as Go does
	for name, value := range about {
		chart[strings.ToUpper(name[:1])+name[1:]] = value
	}
	root := values{
		"Values": all, "Chart": chart,
		"Release": values{"Name": "limits", "Namespace": "default", "Service": "Helm"},
	}
	templates := template.New("").Option("missingkey=error").Funcs(sprig.TxtFuncMap())
	templates.Funcs(template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var out strings.Builder
			err := templates.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
		"tpl": func(text string, data any) (string, error) {
			t, err := template.Must(templates.Clone()).New("tpl").Parse(text)
			if err != nil {
				return "", err
			}
			var out strings.Builder
			err = t.Execute(&out, data)
			return out.String(), err
		},
		"toYaml": func(v any) (string, error) {
			text, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(text), "\n"), err
		},
		"fromYaml": func(text string) (v values, err error) { return v, yaml.Unmarshal([]byte(text), &v) },
		"required": func(why string, v any) (any, error) {
			if v == nil || v == "" {
				return nil, errors.New(why)
			}
			return v, nil
		},
	})
	files, err := filepath.Glob(filepath.Join(chartFolder, "templates", "*"))
	if err != nil {
		return "", "", err
	}
	if _, err := templates.ParseFiles(files...); err != nil {
		return "", "", err
	}
	for _, file := range files {
		name := filepath.Base(file)
		if strings.HasPrefix(name, "_") {
			continue
		}
		var out strings.Builder
		if err := templates.ExecuteTemplate(&out, name, root); err != nil {
			return "", "", err
		}
		switch {
		case name == "NOTES.txt":
			notes = out.String()
		case strings.TrimSpace(out.String()) != "":
			objects += "---\n" + strings.TrimSpace(out.String()) + "\n"
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
	all := map[string]values{"default": nil}
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

// Where there is a Helm, it says the same as the tests' own renderer.
func TestTheChartIsRenderedAsHelmRendersIt(t *testing.T) {
	helm, err := exec.LookPath("helm")
	if err != nil {
		t.Skip("there is no helm in PATH")
	}
	for name, v := range installations(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // Helm is a process for each rendering
			// A Helm that is built by go install takes itself for one of Kubernetes 1.20.
			args := []string{"--kube-version", "1.34"}
			if name != "default" {
				args = append(args, "-f", "testdata/values/"+name+".yaml")
			}
			run := func(args ...string) []byte {
				var stderr bytes.Buffer
				cmd := exec.CommandContext(t.Context(), helm, args...)
				cmd.Stderr = &stderr
				out, err := cmd.Output()
				require.NoError(t, err, "%s%s", out, &stderr)
				return out
			}
			run(append([]string{"lint", "--strict", chartFolder}, args...)...)
			out := run(append([]string{"template", "limits", chartFolder, "--namespace", "default"}, args...)...)
			byHelm, err := read(bytes.TrimPrefix(out, []byte("---\n")))
			require.NoError(t, err)
			text, _, err := rendered(v)
			require.NoError(t, err)
			here, err := read([]byte(text))
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(sorted(here)), fmt.Sprint(sorted(byHelm)))
		})
	}
}

// sorted are the objects as JSON, in an order of their own.
func sorted(m *manifests) map[string]string {
	all := make(map[string]string)
	add := func(kind, name string, object any) {
		text, err := json.Marshal(object)
		if err != nil {
			panic(err)
		}
		all[kind+"/"+name] = string(text)
	}
	for _, o := range m.deployments {
		add("Deployment", o.Name, o)
	}
	for _, o := range m.services {
		add("Service", o.Name, o)
	}
	for _, o := range m.configMaps {
		add("ConfigMap", o.Name, o)
	}
	for _, o := range m.accounts {
		add("ServiceAccount", o.Name, o)
	}
	for _, o := range m.policies {
		add("NetworkPolicy", o.Name, o)
	}
	for _, o := range m.budgets {
		add("PodDisruptionBudget", o.Name, o)
	}
	return all
}

func TestWrongValuesAreRefused(t *testing.T) {
	for says, v := range map[string]values{
		"mode":                       {"mode": "daemon"},
		"'replicas' not allowed":     {"replicas": 3},
		"replicaCount":               {"replicaCount": "3"},
		"checksFrom":                 {"networkPolicy": values{"checksFrom": []any{}}}, // would admit everybody
		"ports/peers":                {"ports": values{"peers": 70000}},
		"extraArgs":                  {"extraArgs": []any{"replicas=2"}},
		"resources":                  {"resources": values{"requests": nil}},
		"name the image":             {"mode": "sidecar"},
		"name the ConfigMap":         {"envoy": values{"enabled": true}},
		"sharedSecret":               {"sharedSecret": ""},
		"maxUnavailable":             {"podDisruptionBudget": values{"maxUnavailable": 0}},
		"'readOnly' not allowed":     {"app": values{"readOnly": true}},
		"networkPolicy/metricsFrom/": {"networkPolicy": values{"metricsFrom": []any{values{}}}}, // everybody, too
	} {
		_, _, err := rendered(v)
		require.ErrorContains(t, err, says, "%v", v)
	}
}
