package deploy

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Helm, Kustomize and their Kubernetes client take longer to compile than the core with
// all its tests. So the rendered manifests are committed, and tests read them. The tests
// with the tag render compare them with Helm and Kustomize.
const (
	renderedFolder = "testdata/rendered"
	digestFile     = "sources.sha256"
	toRender       = "render the manifests again: make manifests"
)

// rendered returns the objects of a kustomization or of the chart with some values: "helm/envoy".
func rendered(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(renderedFolder, name+".yaml"))
	require.NoError(t, err, toRender)
	return text
}

// allManifests returns the manifests of each kustomization and of the chart with each set of
// values.
func allManifests(t *testing.T) map[string]manifests {
	t.Helper()
	found := make(map[string]manifests)
	for file := range files(t, renderedFolder) {
		name, ok := strings.CutSuffix(filepath.ToSlash(file), ".yaml")
		if !ok {
			continue
		}
		m, err := read(rendered(t, name))
		require.NoError(t, err)
		found[name] = m
	}
	return found
}

// files yields the paths of all files in a folder, relative to the folder and in order.
func files(t *testing.T, folder string) iter.Seq[string] {
	return func(yield func(string) bool) {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			name, err := filepath.Rel(folder, path)
			if err == nil && !yield(name) {
				return fs.SkipAll
			}
			return err
		})
		require.NoError(t, err)
	}
}

// digest returns a hash of all sources of the manifests.
func digest(t *testing.T) string {
	t.Helper()
	sum := sha256.New()
	for _, folder := range []string{"helm", "kustomize", "testdata/values"} {
		for name := range files(t, folder) {
			text, err := os.ReadFile(filepath.Join(folder, name))
			require.NoError(t, err)
			fmt.Fprintf(sum, "%s/%s %d\n%s", folder, filepath.ToSlash(name), len(text), text)
		}
	}
	return fmt.Sprintf("%x\n", sum.Sum(nil))
}

func TestManifestsAreRenderedFromCurrentSources(t *testing.T) {
	was, err := os.ReadFile(filepath.Join(renderedFolder, digestFile))
	require.NoError(t, err, toRender)
	require.Equal(t, string(was), digest(t), toRender)
}
