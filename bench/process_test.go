package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bench/internal/worker"
)

// testRoles are those of the benchmarks, beside the command's.
var testRoles = map[string]worker.Role{
	worker.Name: worker.Serve(begin),
	"member":    serveMember,
	"echo":      serveEcho,
	sizerRole:   serveSizer,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(worker.RoleVariable); name != "" {
		if err := worker.Play(name, testRoles[name]); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", name, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if s := oneRedis.server; s != nil {
		_ = s.end()
	}
	os.Exit(code)
}

// start is startRole for a test or benchmark, which the child does not outlive.
func start(tb testing.TB, role string) *process {
	p, err := startRole(role)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, p.end(), "the end of the %s", role) })
	return p
}
