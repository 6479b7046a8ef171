//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bench/internal/worker"
)

func TestSizingPrintsEachPathAndSize(t *testing.T) {
	var out strings.Builder
	require.NoError(t, size(context.Background(), 20*time.Millisecond, 2000, 2000, &out))
	for _, row := range []string{"owned", "echo", "forwarded", "leased", "over HTTP"} {
		require.Contains(t, out.String(), "| "+row+" | ")
	}
	require.Regexp(t, `(?m)^\| \d\d+ \| 0 \| [\d.]+ \|$`, out.String(), "each check of the banned key is denied")
	require.Regexp(t, `(?m)^\| 2000 \| - \| \d+ \| \d+ \|$`, out.String())
	require.Regexp(t, `(?m)^\| 2000 \| 128 MiB \| `, out.String())
}

// The memory in docs/deploy.md equals the memory that the command gives its nodes.
func TestDocumentedMemoryEqualsThatOfBench(t *testing.T) {
	text, err := os.ReadFile("../docs/deploy.md")
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| (\d+) million \| (\d+) \| ([\d.]+) million \| ([\d.]+) (GiB|MiB) \|`).FindAllStringSubmatch(string(text), -1)
	require.GreaterOrEqual(t, len(rows), 2)
	for _, r := range rows {
		keys, err := strconv.Atoi(r[1])
		require.NoError(t, err)
		nodes, err := strconv.Atoi(r[2])
		require.NoError(t, err)
		counts := 2 * keys * worker.Million / (nodes - 1) // one node is away
		require.Equal(t, strconv.FormatFloat(float64(counts)/worker.Million, 'f', 1, 64), strings.TrimSuffix(r[3], ""), r[0])
		memory, unit := float64(memoryFor(counts)), 1<<20
		if r[5] == "GiB" {
			unit = 1 << 30
		}
		want := fmt.Sprintf("%.0f", memory/float64(unit))
		if r[5] == "GiB" {
			want = fmt.Sprintf("%.1f", memory/float64(unit))
		}
		require.Equal(t, want, r[4], r[0])
	}
}
