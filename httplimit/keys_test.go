package httplimit

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRepeatedIdentityFieldsAreIgnored(t *testing.T) {
	user := HeaderValue("x-user")
	for _, c := range []struct {
		about string
		read  func(*http.Request) string
		field []string // pairs of names and values
		want  string
	}{
		{"a value", user, []string{"X-User", "ada"}, "ada"},
		{"none", user, nil, ""},
		{"two", user, []string{"X-User", "ada", "X-User", "bob"}, ""},
		{"a token", BearerToken, []string{"Authorization", "Bearer abc"}, "abc"},
		{"a token, by another spelling", BearerToken, []string{"Authorization", "bearer  abc "}, "abc"},
		{"no token", BearerToken, nil, ""},
		{"two tokens", BearerToken, []string{"Authorization", "Bearer abc", "Authorization", "Bearer def"}, ""},
		{"a password", BearerToken, []string{"Authorization", "Basic abc"}, ""},
		{"a scheme alone", BearerToken, []string{"Authorization", "Bearer"}, ""},
	} {
		require.Equal(t, c.want, c.read(get("/", "192.0.2.1", c.field...)), c.about)
	}
}
