package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// eventually bounds the wait for an event on a machine that is busy. It is no promise.
const eventually = 2 * time.Minute

// wait has a test wait until something is so.
func wait(t *testing.T, is func() bool, what ...any) {
	t.Helper()
	require.Eventually(t, is, eventually, 5*time.Millisecond, what...)
}
