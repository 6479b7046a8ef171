package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// eventually bounds the wait for an event on a busy machine. The demo does not promise this
// bound.
const eventually = 2 * time.Minute

// wait waits until the given function returns true.
func wait(t *testing.T, is func() bool, what ...any) {
	t.Helper()
	require.Eventually(t, is, eventually, 5*time.Millisecond, what...)
}
