// Package secretname recognises names of values that are credentials, such as those of
// headers.
package secretname

import (
	"slices"
	"strings"
)

// parts are what names of credentials contain. Some other names contain them as well, whose
// values are hidden without need.
var parts = [...]string{"auth", "token", "key", "secret", "cookie", "password", "session", "credential", "signature"}

// Is reports whether the value that has this name is taken for a secret, such as that of
// X-API-Key. The case of letters does not matter.
func Is(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(parts[:], func(part string) bool { return strings.Contains(name, part) })
}
