package main

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/rpc"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/bench/internal/worker"
)

// patience is the Timeout of members by default. It is long, so that a busy machine makes a check
// slow, and does not make another member decide it.
const patience = time.Second

// MemberConfig is what the benchmarks choose of a node.
type MemberConfig struct {
	Join     []string
	Replicas int           // as in weir.Config
	Timeout  time.Duration // patience if zero
	Cover    cover         // of connections; none if empty
	Rate     int64         // of a fixed window of an hour; if zero, the limit admits everything
	MaxKeys  int           // 4,000,000 if zero
}

func startNode(c MemberConfig) (*weir.Node, error) {
	cfg := weir.Config{
		Name: "bench", Bind: "127.0.0.1:0", Join: c.Join, Replicas: c.Replicas,
		Timeout: cmp.Or(c.Timeout, patience), MaxKeys: cmp.Or(c.MaxKeys, 4*worker.Million), Logger: quiet(),
	}
	if err := c.Cover.of(&cfg); err != nil {
		return nil, err
	}
	return weir.Start(context.Background(), cfg)
}

// join starts a node in this process, which joins the members, and waits until all serve.
func join(tb testing.TB, c MemberConfig, members ...*member) *weir.Node {
	c.Join = []string{members[0].addr}
	n, err := startNode(c)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, n.Close()) })
	require.Eventually(tb, func() bool { return n.Ready() && serving(n) == len(members)+1 },
		worker.StartWait, 5*time.Millisecond, "%d nodes do not serve: %v", len(members)+1, n.Members())
	return n
}

// member is a node in another process, and the way to call its service.
type member struct {
	*remote
	addr string // of the node
}

// startMembers starts n members, and waits until each has met the others.
func startMembers(tb testing.TB, n int, c MemberConfig) []*member {
	var members []*member
	for len(members) < n {
		members = append(members, startMember(tb, c))
		c.Join = []string{members[0].addr}
	}
	call[int](tb, members, "Member.Meet", n)
	return members
}

// startMember starts a process and its node.
func startMember(tb testing.TB, c MemberConfig) *member {
	m := new(member)
	var err error
	m.remote, err = startRemote("member")
	require.NoError(tb, err)
	require.NoError(tb, m.Call("Member.Start", c, &m.addr))
	return m
}

func endMembers(tb testing.TB, members []*member) {
	for _, m := range members {
		require.NoError(tb, m.end(), "the end of a member")
	}
}

// call calls the members at once, and returns their replies.
func call[R any](tb testing.TB, members []*member, method string, arg int) []R {
	return calling[R](tb, members, method, arg)()
}

// calling calls the members at once, and returns what waits for their replies.
func calling[R any](tb testing.TB, members []*member, method string, arg int) (wait func() []R) {
	replies, calls := make([]R, len(members)), make([]*rpc.Call, len(members))
	for i, m := range members {
		calls[i] = m.Go(method, arg, &replies[i], nil)
	}
	return func() []R {
		for _, c := range calls {
			require.NoError(tb, (<-c.Done).Error)
		}
		return replies
	}
}

// service is the other process's side of member.
type service struct {
	node    *weir.Node
	limiter *weir.Limiter
	load    *steady
	busy    *busy
}

func serveMember(ready func(string), done <-chan struct{}) error {
	s := new(service)
	if err := worker.ServeRPC("Member", s, ready, done); err != nil {
		return err
	}
	if s.load != nil {
		s.load.end()
	}
	if s.busy != nil {
		s.busy.end()
	}
	if s.node == nil {
		return nil
	}
	return s.node.Close()
}

// Start starts the node, and answers with its address.
func (s *service) Start(c MemberConfig, addr *string) (err error) {
	if s.node, err = startNode(c); err != nil {
		return err
	}
	*addr = addrOf(s.node)
	limit := limitOf("sliding_window")
	if c.Rate > 0 {
		limit = weir.Limit{Name: "used up", Algorithm: weir.FixedWindow, Rate: c.Rate, Per: time.Hour}
	}
	s.limiter, err = s.node.Limiter(limit)
	return err
}

// Meet waits until the node is ready and so many serve.
func (s *service) Meet(members int, _ *int) error { return untilMet(s.node, members, memberWait) }

// Exact waits until a hundred keys in a row are decided by those with authority.
func (s *service) Exact(_ int, _ *int) error { return untilExact(s.limiter, memberWait) }

// fillers is the number of concurrent callers of all.
const fillers = 512

// all calls do with each of the first keys, from concurrent callers.
func (s *service) all(keys int, do func(key string) error) error {
	var asking sync.WaitGroup
	errs := make([]error, fillers)
	for c := range fillers {
		asking.Go(func() {
			var key [worker.KeyBytes]byte
			for i := c; i < keys && errs[c] == nil; i += fillers {
				errs[c] = do(string(worker.AppendKey(key[:0], i)))
			}
		})
	}
	asking.Wait()
	return errors.Join(errs...)
}

// Load begins a steady load of so many checks a second, of the same keys at
// random.
func (s *service) Load(perSecond int, _ *int) error {
	s.load = newSteady(perSecond, func() weir.Source {
		var key [worker.KeyBytes]byte
		d, _ := s.limiter.Allow(context.Background(), string(worker.AppendKey(key[:0], rand.IntN(worker.Million))))
		return d.Source
	})
	return nil
}

// Lap answers with what the load has seen since the last one.
func (s *service) Lap(_ int, lap *Lap) error {
	*lap = s.load.cut()
	return nil
}
