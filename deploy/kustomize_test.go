package deploy

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// kustomizations are those that are to be applied, by folder.
var kustomizations = []string{"server", "sidecar", "embedded"}

func kustomize(t *testing.T, folder string) []byte {
	t.Helper()
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	require.NoError(t, err)
	text, err := all.AsYaml()
	require.NoError(t, err)
	return text
}

func TestEachKustomizationIsWhatKubernetesTakes(t *testing.T) {
	for _, name := range kustomizations {
		t.Run(name, func(t *testing.T) { sound(t, kustomize(t, "kustomize/"+name)) })
	}
}

// sound holds objects to the schemas of Kubernetes, to its types, and to each other.
func sound(t *testing.T, text []byte) {
	t.Helper()
	require.Empty(t, conforms(t, text))
	m, err := read(text)
	require.NoError(t, err)
	require.Empty(t, m.problems())
}
