package deploy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const chartFolder = "helm/weir"

// The chart contains copies of all files that it renders, because it is packed without the
// rest of the project.
func TestChartFilesEqualThoseOfContrib(t *testing.T) {
	for _, name := range []string{"weir.rules.yaml", "dashboard.json"} {
		want, err := os.ReadFile(filepath.Join("../contrib/prometheus", name))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(chartFolder, "files", name))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "cp contrib/prometheus/%s deploy/helm/weir/files/", name)
	}
}
