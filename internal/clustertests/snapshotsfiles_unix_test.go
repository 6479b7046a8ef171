//go:build unix && !aix && !solaris

package clustertests

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/snapshot"
)

// The newest snapshot is not a regular file. This is counted and logged, and the node loads the
// snapshot before it.
func TestNodeReportsASnapshotThatIsNoFile(t *testing.T) {
	t.Parallel()
	for kind, place := range map[string]func(path string) error{
		"named pipe":    func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"directory":     func(path string) error { return os.Mkdir(path, 0o700) },
		"symbolic link": func(path string) error { return os.Symlink("elsewhere", path) },
	} {
		for _, alone := range []bool{false, true} {
			path := t.TempDir()
			if !alone {
				dir, err := snapshot.OpenDir(path, snapshot.DirOptions{})
				require.NoError(t, err)
				n, err := weir.Start(t.Context(), weir.Config{Name: "a", Snapshots: dir, Logger: quiet})
				require.NoError(t, err)
				l, err := n.Limiter(damagedLimit)
				require.NoError(t, err)
				_, err = l.AllowN(t.Context(), "k", 60)
				require.NoError(t, err)
				require.NoError(t, n.Leave(t.Context()))
				require.NoError(t, n.Close())
				require.NoError(t, dir.Close())
			}
			require.NoError(t, place(filepath.Join(path, "weir-a.9.snapshot")))
			dir, err := snapshot.OpenDir(path, snapshot.DirOptions{})
			require.NoError(t, err)
			var log bytes.Buffer
			began := time.Now()
			n, err := weir.Start(t.Context(), weir.Config{Name: "a", Snapshots: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			require.NoError(t, err)
			require.Less(t, time.Since(began), time.Minute)
			require.Equal(t, 1, n.Stats().Snapshots.Refused, kind)
			l, err := n.Limiter(damagedLimit)
			require.NoError(t, err)
			d := peek(t, l, "k")
			if alone {
				require.EqualValues(t, 100, d.Remaining)
			} else {
				require.EqualValues(t, 40, d.Remaining, kind)
			}
			require.NoError(t, n.Close())
			require.NoError(t, dir.Close())
			require.Contains(t, log.String(), "is a "+kind)
		}
	}
}
