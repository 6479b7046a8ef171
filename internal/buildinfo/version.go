// Package buildinfo returns the version of Weir that a program was built with.
package buildinfo

import "runtime/debug"

// module is the path of the module of package weir. All modules of a release have the same version.
const module = "github.com/weir-go/weir"

// Version returns the version of the Weir module in this program, such as "v0.1.0". If the build has
// only the commit, the result is "revision " and twelve hexadecimal digits. Without a commit it is
// "devel".
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) string {
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if (m.Path == module || m.Path == module+"/cmd/weir") && m.Version != "" && m.Version != "(devel)" {
			return m.Version
		}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return "revision " + s.Value[:min(len(s.Value), 12)]
		}
	}
	return "devel"
}
