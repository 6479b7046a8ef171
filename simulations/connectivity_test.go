package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPausedNodeNoticesAMissingMemberLater(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ pause, every, want time.Duration }{
		{19 * ms, 100 * ms, time.Second},
		{100 * ms, 200 * ms, 1800 * ms},
		{264 * ms, 319 * ms, 3640 * ms},
		{500 * ms, 10 * time.Second, 2 * time.Second},
	} {
		require.Equal(t, c.want, noticeTime(c.pause, c.every), "%v of %v", c.pause, c.every)
	}
}
