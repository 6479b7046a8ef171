package snapshot

import (
	"bytes"
	"io"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFullDiskKeepsPreviousSnapshots(t *testing.T) {
	path := t.TempDir()
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("a small file system needs root: %v", err)
	}
	defer func() { require.NoError(t, syscall.Unmount(path, 0)) }()
	d, err := OpenDir(path, DirOptions{})
	require.NoError(t, err)
	save(t, d, "a", "a1")
	save(t, d, "a", "a2")
	for range 3 {
		err := d.Save(ctx, "a", func(w io.Writer) error {
			_, err := io.Copy(w, bytes.NewReader(make([]byte, 2<<20)))
			return err
		})
		require.ErrorIs(t, err, syscall.ENOSPC)
	}
	require.Equal(t, []string{"weir-a.1.snapshot", "weir-a.2.snapshot"}, files(t, path))
	requireLoads(t, d, "a: a2")
	save(t, d, "a", "a3")
	requireLoads(t, d, "a: a3")
	require.NoError(t, d.Close())
}
