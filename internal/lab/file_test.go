package lab

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReplaceLeavesOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	for _, text := range []string{"one", "two"} {
		require.NoError(t, Replace(path, []byte(text)))
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, string(got))
	}
	all, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Error(t, Replace(filepath.Join(path, "none"), nil))
}

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		require.True(t, Sleep(t.Context(), time.Second))
		require.Equal(t, time.Second, time.Since(begun))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.False(t, Sleep(ctx, time.Hour))
		require.Equal(t, 2*time.Second, time.Since(begun))
		require.False(t, Sleep(ctx, 0))
	})
}
