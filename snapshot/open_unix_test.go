//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package snapshot

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// placed has a function for each of three kinds of files that are not regular. The function creates such a
// file at path.
var placed = map[string]func(path string) error{
	"symbolic link": func(path string) error {
		return os.Symlink(strings.Replace(path, ".3.", ".1.", 1), path)
	},
	"named pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
	"directory":  func(path string) error { return os.Mkdir(path, 0o700) },
}

func TestSpecialFileAsNewestSnapshotIsReported(t *testing.T) {
	for kind, place := range placed {
		t.Run(kind, func(t *testing.T) {
			path := t.TempDir()
			d := open(t, path, DirOptions{})
			save(t, d, "a", "a1")
			save(t, d, "a", "a2")
			save(t, d, "b", "b1")
			at := filepath.Join(path, "weir-a.3.snapshot")
			require.NoError(t, place(at))
			began := time.Now()
			read, err := load(d)
			require.Less(t, time.Since(began), 10*time.Second)
			require.ErrorContains(t, err, at+" is a "+kind)
			require.Equal(t, []string{"a: a2", "b: b1"}, read)
			entries, err := List(path)
			require.NoError(t, err)
			require.Len(t, entries, 4)
			require.NotZero(t, entries[0].Mode)

			// The next snapshot has a higher generation, and its name is free.
			save(t, d, "a", "a4")
			requireLoads(t, d, "a: a4", "b: b1")
			require.Equal(t, []string{"weir-a.2.snapshot", "weir-a.3.snapshot", "weir-a.4.snapshot", "weir-b.1.snapshot"}, files(t, path))
		})
	}
}

// A pipe may replace the file after Open has looked at the type of the file.
func TestOpenDoesNotWaitForWriterOfPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	opened := make(chan error, 1)
	go func() {
		file, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
		if err == nil {
			err = file.Close()
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for a writer")
	}
}
