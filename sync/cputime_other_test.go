//go:build !linux

package countsync

import (
	"testing"
	"time"
)

func clock(testing.TB) func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}
