//go:build unix

package rules

import (
	"log/slog"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/full"
	"github.com/weir-go/weir/internal/race"
)

// spent is the time that processors have worked for this process. Other processes
// have no part in it.
func spent(t *testing.T) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The full run loads 10,000 rules in that time.
func TestThousandsOfRulesLoadWithinASecond(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector takes its own time")
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, large(full.Pick(t, 2_500, 10_000)))
	n := startNode(t)
	best := time.Hour
	for range 3 {
		begun := spent(t)
		b, err := Open(t.Context(), n, path, BookOptions{Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		best = min(best, spent(t)-begun)
		require.NoError(t, b.Close())
		if best < time.Second {
			break
		}
	}
	require.Less(t, best, time.Second)
	t.Logf("%v", best)
}
