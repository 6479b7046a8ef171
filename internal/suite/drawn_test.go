package main_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/internal/drawn"
)

// TestDraws prints what rapid draws, where it is asked to.
func TestDraws(t *testing.T) {
	if os.Getenv("WEIR_DRAWS") == "" {
		t.Skip("TestEachRunDrawsTheSame runs it in processes of their own")
	}
	rapid.Check(t, func(t *rapid.T) { println("drew", rapid.Uint64().Draw(t, "n")) })
}

func TestEachRunDrawsTheSame(t *testing.T) {
	drawn := func(env string, args ...string) string {
		run := exec.Command(os.Args[0], append([]string{"-test.run", "^TestDraws$"}, args...)...)
		run.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, drawn.Variable+"=") }), "WEIR_DRAWS=1")
		if env != "" {
			run.Env = append(run.Env, env)
		}
		said, err := run.CombinedOutput()
		require.NoError(t, err, "%s", said)
		kept := strings.Split(string(said), "\n")
		require.Greater(t, len(kept), 100)
		return strings.Join(kept[:100], "\n")
	}
	first := drawn("")
	require.Equal(t, first, drawn(""), "by default")
	seven := drawn("WEIR_SEED=7")
	require.NotEqual(t, first, seven)
	require.Equal(t, seven, drawn("", "-rapid.seed", "7"), "the command line comes first")
	require.NotEqual(t, drawn("WEIR_SEED=0"), drawn("WEIR_SEED=0"), "a seed of 0 is another each time")
}
