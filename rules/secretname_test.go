package rules_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/secretname"
)

func TestNamesOfCredentialsAreSecret(t *testing.T) {
	for _, name := range []string{"Authorization", "Proxy-Authorization", "X-API-Key", "apikey", "Cookie", "X-Auth-Token", "x-session-id", "client_secret"} {
		require.True(t, secretname.Is(name), name)
	}
	for _, name := range []string{"", "X-Plan", "X-Forwarded-For", "User-Agent", "X-Tenant", "remote_address"} {
		require.False(t, secretname.Is(name), name)
	}
}
