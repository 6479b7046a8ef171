package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
)

// startMembers starts n nodes in separate processes, and waits until all of them have
// met.
func startMembers(tb testing.TB, n int) (members []*lab.Service) {
	var join []string
	for range n {
		m, err := startRemote("", "Member")
		require.NoError(tb, err)
		members = append(members, m)
		var addr string
		require.NoError(tb, m.Call("Member.Start", join, &addr))
		join = append(join, addr)
	}
	call[int](tb, members, "Member.Meet", n)
	return members
}

// call calls the members concurrently, and returns their replies.
func call[R any](tb testing.TB, members []*lab.Service, method string, arg int) []R {
	replies, err := callAll[R](members, memberWait, method, arg)
	require.NoError(tb, err)
	return replies
}

// service is a node with a load in the same process.
type service struct {
	node    *weir.Node
	limiter *weir.Limiter
	busy    *busy
}

// Close ends the load, and closes the node.
func (s *service) Close() error {
	if s.busy != nil {
		s.busy.end()
	}
	if s.node == nil {
		return nil
	}
	return s.node.Close()
}

// Start starts the node. The reply is its address.
func (s *service) Start(join []string, addr *string) (err error) {
	s.node, err = weir.Start(context.Background(), weir.Config{
		Name: "bench", Bind: "127.0.0.1:0", Join: join, Timeout: busyTimeout, MaxKeys: floodMaxKeys, Logger: quiet(),
	})
	if err != nil {
		return err
	}
	*addr = addrOf(s.node)
	s.limiter, err = s.node.Limiter(weir.Limit{Name: "used up", Algorithm: weir.FixedWindow, Rate: busyRate, Per: time.Hour})
	return err
}

// Meet waits until the node is ready and has the given number of serving members.
func (s *service) Meet(members int, _ *int) error { return untilMet(s.node, members, memberWait) }

// Exact waits until a hundred consecutive keys are decided with authority.
func (s *service) Exact(_ int, _ *int) error { return untilExact(s.limiter, memberWait) }
