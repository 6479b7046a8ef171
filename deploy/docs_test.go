package deploy

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPortsEqualDocumentedPorts(t *testing.T) {
	text, err := os.ReadFile("../docs/deploy.md")
	require.NoError(t, err)
	documented := make(map[string]string) // keyed by flag
	for _, row := range regexp.MustCompile("(?m)^\\| (\\d+) \\| .*`(?:-|Config\\.)(\\w+)`").FindAllStringSubmatch(string(text), -1) {
		documented[map[string]string{"Bind": "peers"}[row[2]]+row[2]] = row[1]
	}
	require.Equal(t, map[string]string{"peersBind": "7946", "checks": "8080", "admin": "8081", "health": "8082", "envoy": "8083"}, documented)

	for _, name := range []string{"kustomize/server", "helm/default", "helm/envoy"} {
		m, err := read(rendered(t, name))
		require.NoError(t, err)
		ports := m.workload(t).ports()
		require.Equal(t, documented["peersBind"], fmt.Sprint(ports["peers/TCP"]), name)
		for _, flag := range []string{"checks", "admin", "health", "envoy"} {
			if port, ok := ports[flag+"/TCP"]; ok || flag != "envoy" {
				require.Equal(t, documented[flag], fmt.Sprint(port), "%s: %s", name, flag)
			}
		}
	}
}
