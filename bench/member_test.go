package main

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/bench/internal/worker"
	"github.com/weir-go/weir/internal/lab"
)

// patience is the default Timeout of members. The timeout is long, so that on a busy
// machine, a check becomes slow instead of being decided by another member.
const patience = time.Second

// MemberConfig contains the settings of a node that the benchmarks choose.
type MemberConfig struct {
	Join    []string
	Timeout time.Duration // patience if zero
	Rate    int64         // units of a fixed window of an hour; if zero, the limit admits everything
	MaxKeys int           // 4,000,000 if zero
}

// startMembers starts n nodes in separate processes, and waits until all of them have
// met. It returns them and their addresses.
func startMembers(tb testing.TB, n int, c MemberConfig) (members []*lab.Service, addrs []string) {
	for range n {
		m, err := startRemote("", "Member")
		require.NoError(tb, err)
		members = append(members, m)
		var addr string
		require.NoError(tb, m.Call("Member.Start", c, &addr))
		c.Join = append(c.Join, addr)
	}
	call[int](tb, members, "Member.Meet", n)
	return members, c.Join
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
func (s *service) Start(c MemberConfig, addr *string) (err error) {
	s.node, err = weir.Start(context.Background(), weir.Config{
		Name: "bench", Bind: "127.0.0.1:0", Join: c.Join, Timeout: cmp.Or(c.Timeout, patience), MaxKeys: cmp.Or(c.MaxKeys, 4*worker.Million), Logger: quiet(),
	})
	if err != nil {
		return err
	}
	*addr = addrOf(s.node)
	limit := weir.Limit{Name: "api", Rate: 1_000_000_000_000, Per: time.Hour}
	if c.Rate > 0 {
		limit = weir.Limit{Name: "used up", Algorithm: weir.FixedWindow, Rate: c.Rate, Per: time.Hour}
	}
	s.limiter, err = s.node.Limiter(limit)
	return err
}

// Meet waits until the node is ready and has the given number of serving members.
func (s *service) Meet(members int, _ *int) error { return awaitMembers(s.node, members, memberWait) }

// Exact waits until a hundred consecutive keys are decided with authority.
func (s *service) Exact(_ int, _ *int) error { return awaitAuthority(s.limiter, memberWait) }
