package cluster_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/conns"
)

func TestOnlyALoopbackIsOnThisMachine(t *testing.T) {
	for _, addr := range []string{"", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "localhost:1"} {
		require.True(t, conns.OnThisMachine(addr), addr)
	}
	for _, addr := range []string{"10.0.0.1:1", "[2001:db8::1]:1", "0.0.0.0:1", "[::]:1", "limits.example:1", "localhost.example:1"} {
		require.False(t, conns.OnThisMachine(addr), addr)
	}
}
