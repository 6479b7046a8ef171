package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheScenarioInTheReadmeIsRead(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(text), "```yaml\n")
	require.True(t, ok)
	example, _, ok := strings.Cut(rest, "```")
	require.True(t, ok)
	_, err = parse("README.md", []byte(example))
	require.NoError(t, err)
}

func TestTheBenchmarkInTheReadmeIsRead(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	const file = "testdata/hour.yaml"
	require.Contains(t, string(text), "./simulations/"+file)
	_, err = find(file)
	require.NoError(t, err)
}
