package buildinfo

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersionIsReadFromBuildInfo(t *testing.T) {
	for _, c := range []struct {
		about string
		info  debug.BuildInfo
		want  string
	}{
		{"a service that requires it", debug.BuildInfo{Main: debug.Module{Path: "example.com/app", Version: "v9.9.9"}, Deps: []*debug.Module{{Path: module, Version: "v1.2.3"}}}, "v1.2.3"},
		{"the command", debug.BuildInfo{Main: debug.Module{Path: module + "/cmd/weir", Version: "v1.2.3"}}, "v1.2.3"},
		{"a checkout", debug.BuildInfo{Main: debug.Module{Path: module, Version: "(devel)"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}}}, "revision 0123456789ab"},
		{"a build without a commit", debug.BuildInfo{Deps: []*debug.Module{{Path: module, Version: "(devel)"}}}, "devel"},
	} {
		require.Equal(t, c.want, versionOf(&c.info), c.about)
	}
	require.NotEmpty(t, Version())
}
