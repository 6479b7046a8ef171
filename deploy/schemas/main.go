// Command schemas writes the JSON Schemas with which kubeconform checks the manifests,
// from the OpenAPI documents of a Kubernetes release. From the folder deploy:
//
//	go run ./schemas testdata/schemas
//
// The schemas contain only the kinds that the manifests use, without descriptions for
// people, and they reject fields that the release does not know.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// release is the Kubernetes release of the documents.
const release = "k8s.io/kubernetes@v1.34.1"

// kinds lists the kinds in the manifests, by the document with their schema.
var kinds = map[string][]string{
	"api__v1":                     {"io.k8s.api.core.v1.ConfigMap", "io.k8s.api.core.v1.Secret", "io.k8s.api.core.v1.Service", "io.k8s.api.core.v1.ServiceAccount"},
	"apis__apps__v1":              {"io.k8s.api.apps.v1.Deployment", "io.k8s.api.apps.v1.StatefulSet"},
	"apis__autoscaling__v2":       {"io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler"},
	"apis__networking.k8s.io__v1": {"io.k8s.api.networking.v1.NetworkPolicy"},
	"apis__policy__v1":            {"io.k8s.api.policy.v1.PodDisruptionBudget"},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./schemas FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(folder string) error {
	source, err := download()
	if err != nil {
		return err
	}
	for document, names := range kinds {
		text, err := os.ReadFile(filepath.Join(source, "api", "openapi-spec", "v3", document+"_openapi.json"))
		if err != nil {
			return err
		}
		var d struct {
			Components struct{ Schemas map[string]map[string]any }
		}
		if err := json.Unmarshal(text, &d); err != nil {
			return fmt.Errorf("schemas: %s: %w", document, err)
		}
		for _, name := range names {
			schema, file, err := standalone(d.Components.Schemas, name)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(folder, file), schema, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// download returns the folder with the sources of the release.
func download() (string, error) {
	c := exec.Command("go", "mod", "download", "-json", release)
	c.Env = append(os.Environ(), "GOWORK=off")
	text, err := c.Output()
	var module struct{ Dir, Error string }
	if wrong := json.Unmarshal(text, &module); wrong != nil || module.Error != "" {
		return "", fmt.Errorf("schemas: %s: %s: %w", release, module.Error, errors.Join(err, wrong))
	}
	return module.Dir, err
}

// standalone returns the schema of a kind with all referenced schemas, and the name under
// which kubeconform looks it up: kind, group, version.
func standalone(all map[string]map[string]any, name string) (schema []byte, file string, err error) {
	root, ok := all[name]
	if !ok {
		return nil, "", fmt.Errorf("schemas: there is no %s in %s", name, release)
	}
	of := root["x-kubernetes-group-version-kind"].([]any)[0].(map[string]any)
	group, version, kind := of["group"].(string), of["version"].(string), of["kind"].(string)
	apiVersion, suffix := version, "-"+version
	if group != "" {
		apiVersion, suffix = group+"/"+version, "-"+strings.Split(group, ".")[0]+"-"+version
	}
	defined := make(map[string]any)
	result := reduce(all, root, defined).(map[string]any)
	properties := result["properties"].(map[string]any)
	properties["apiVersion"], properties["kind"] = map[string]any{"const": apiVersion}, map[string]any{"const": kind}
	result["required"] = []string{"apiVersion", "kind", "metadata"}
	result["definitions"] = defined
	result["$schema"] = "http://json-schema.org/draft-07/schema#"
	schema, err = json.MarshalIndent(result, "", " ")
	return append(schema, '\n'), strings.ToLower(kind) + suffix + ".json", err
}

const (
	within  = "#/components/schemas/"
	defines = "#/definitions/"
)

// reduce keeps the parts of a schema that determine validity, closes the objects, and
// adds the referenced schemas.
func reduce(all map[string]map[string]any, schema any, defined map[string]any) any {
	switch s := schema.(type) {
	case []any:
		reduced := make([]any, len(s))
		for i, item := range s {
			reduced[i] = reduce(all, item, defined)
		}
		return reduced
	case map[string]any:
		reduced := make(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(s)) {
			value := s[key]
			switch key {
			case "properties":
				fields := make(map[string]any)
				for name, field := range value.(map[string]any) {
					fields[name] = reduce(all, field, defined)
				}
				reduced[key] = fields
			case "items", "additionalProperties", "oneOf", "anyOf", "allOf", "not":
				reduced[key] = reduce(all, value, defined)
			case "type", "enum", "required", "minimum", "maximum", "pattern":
				reduced[key] = value
			case "$ref":
				name := strings.TrimPrefix(value.(string), within)
				if _, done := defined[name]; !done {
					defined[name] = true // the fields may refer back to the schema
					defined[name] = reduce(all, all[name], defined)
				}
				reduced[key] = defines + name
			}
		}
		if _, open := reduced["additionalProperties"]; !open && reduced["properties"] != nil {
			reduced["additionalProperties"] = false
		}
		return reduced
	}
	return schema
}
