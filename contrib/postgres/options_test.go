package pgrules_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	pgrules "github.com/weir-go/weir/contrib/postgres"
)

func TestEachInvalidFieldIsReported(t *testing.T) {
	_, err := pgrules.New(pgrules.Options{Connection: "postgres://weir:sup3r/secret@db:5432/ops", Poll: -1})
	require.ErrorIs(t, err, weir.ErrInvalid)
	for _, part := range []string{
		"Name is empty", "Poll is -1ns", "Connection, or the PG variables of the environment, cannot be parsed",
	} {
		require.ErrorContains(t, err, part)
	}
	require.NotContains(t, err.Error(), "sup3r")

	_, err = pgrules.New(pgrules.Options{Connection: "postgres://weir:sup3r-secret@db/ops?sslmode=verify-full&sslrootcert=/no/such/file", Name: "api"})
	require.ErrorIs(t, err, weir.ErrInvalid)
	require.ErrorContains(t, err, "/no/such/file")
	require.NotContains(t, err.Error(), "sup3r")
}

func TestNameOfSourceHasNoCredentials(t *testing.T) {
	for connection, want := range map[string]string{
		"postgres://weir:sup3r-secret@db:6432/ops":                        "postgres://db:6432/ops/weir_rules/api",
		"host=/run/postgresql user=weir password=sup3r-secret dbname=ops": "postgres:///run/postgresql:5432/ops/weir_rules/api",
		"postgres://weir:sup3r-secret@[::1]:5432,b:5433/ops":              "postgres://[::1]:5432/ops/weir_rules/api",
	} {
		source, err := pgrules.New(pgrules.Options{Connection: connection, Name: "api"})
		require.NoError(t, err, connection)
		require.Equal(t, want, source.Name())
		require.NoError(t, source.Close())
	}
}
