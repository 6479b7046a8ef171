package identity

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFileReadableByOthersCausesWarning(t *testing.T) {
	dir := t.TempDir()
	if inMemory(dir) {
		t.Skip("the folder of temporary files is in memory, where files are not judged: set TMPDIR")
	}
	for _, c := range []struct {
		mode os.FileMode
		warn bool
	}{{0o600, false}, {0o400, false}, {0o440, false}, {0o640, false}, {0o644, true}, {0o444, true}, {0o604, true}} {
		name := filepath.Join(dir, "secret")
		require.NoError(t, os.WriteFile(name, nil, 0o600))
		require.NoError(t, os.Chmod(name, c.mode))
		link := filepath.Join(dir, "link")
		_ = os.Remove(link)
		require.NoError(t, os.Symlink(name, link))
		for _, path := range []string{name, link} {
			var out bytes.Buffer
			WarnOfReaders(slog.New(slog.NewTextHandler(&out, nil)), "", filepath.Join(dir, "none"), dir, path)
			if c.warn {
				require.Contains(t, out.String(), `level=WARN msg="every user of this machine can read a file of secrets; run chmod 600" path=`+path+"\n", c.mode)
				require.Equal(t, 1, bytes.Count(out.Bytes(), []byte("\n")), out.String())
			} else {
				require.Empty(t, out.String(), c.mode)
			}
		}
	}
}

func TestFileInMemoryCausesNoWarning(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "identity")
	if err != nil {
		t.Skip("this machine has no /dev/shm: ", err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "secret")
	require.NoError(t, os.WriteFile(name, nil, 0o600))
	require.NoError(t, os.Chmod(name, 0o444))
	var out bytes.Buffer
	WarnOfReaders(slog.New(slog.NewTextHandler(&out, nil)), name)
	require.Empty(t, out.String())
}
