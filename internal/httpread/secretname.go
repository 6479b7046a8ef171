package httpread

import (
	"slices"
	"strings"
)

// secretParts are the parts by which names of credentials are recognized. Some other names contain
// them too, so their values are hidden without need.
var secretParts = [...]string{"auth", "token", "key", "secret", "cookie", "password", "session", "credential", "signature"}

// IsSecretName reports whether the value of a header, cookie or parameter of this name is regarded as
// a secret, such as that of X-API-Key. The case of letters does not matter.
func IsSecretName(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(secretParts[:], func(part string) bool { return strings.Contains(name, part) })
}
