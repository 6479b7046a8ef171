package grpclimit

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
)

func TestRepeatedMetadataIsNotRead(t *testing.T) {
	for _, c := range []struct {
		about       string
		pairs       []string
		value, said string
	}{
		{"nothing", nil, "", ""},
		{"one of each", []string{"X-Api-Key", "k", "Authorization", "Bearer t"}, "k", "t"},
		{"twice", []string{"x-api-key", "k", "x-api-key", "k", "authorization", "Bearer t", "authorization", "Bearer u"}, "", ""},
		{"another scheme", []string{"x-api-key", "", "authorization", "Basic t"}, "", ""},
		{"no token", []string{"authorization", "Bearer"}, "", ""},
	} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(c.pairs...))
		require.Equal(t, c.value, MetadataValue("X-API-Key")(ctx), c.about)
		require.Equal(t, c.said, BearerToken(ctx), c.about)
	}
	require.Empty(t, MetadataValue("x")(t.Context()), "no metadata")
}
