package main

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// oneRedis is the server of all tests and benchmarks of this process, which TestMain ends. It
// has an error in its place where none could be started.
var oneRedis struct {
	once   sync.Once
	server *redisServer
	err    error
}

// sharedRedis returns that server, emptied, or nil if none is installed. Those that use it do not
// run side by side, because each empties it.
func sharedRedis(tb testing.TB) *redisServer {
	oneRedis.once.Do(func() { oneRedis.server, oneRedis.err = startRedis() })
	if errors.Is(oneRedis.err, errNoRedis) {
		return nil
	}
	require.NoError(tb, oneRedis.err)
	require.NoError(tb, oneRedis.server.flush())
	return oneRedis.server
}
