package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/snapshot"
)

func TestADiskThatHangsDoesNotKeepTheProcess(t *testing.T) {
	dir, err := snapshot.OpenDir(t.TempDir(), snapshot.DirOptions{})
	require.NoError(t, err)
	hangs, over, saved := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		saved <- dir.Save(t.Context(), "a", func(io.Writer) error { close(hangs); <-over; return nil })
	}()
	<-hangs
	require.ErrorContains(t, letGo(dir), "-snapshots: the disk does not answer")
	close(over)
	require.NoError(t, <-saved)
	require.NoError(t, letGo(dir))
}
