package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/rpc"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/bench/internal/worker"
)

// patience is the nodes' Timeout unless told: generous, so that a busy machine makes
// a check slow and never makes it local.
const patience = time.Second

// MemberConfig is what the benchmarks choose of a node.
type MemberConfig struct {
	Join     []string
	Replicas int           // as in weir.Config
	Timeout  time.Duration // patience if zero
	Cover    cover         // of connections; none if empty
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

// join starts a node in this process, beside the members, and waits until all
// serve.
func join(tb testing.TB, replicas int, members ...*member) *weir.Node {
	return joinWith(tb, MemberConfig{Replicas: replicas}, members...)
}

// joinWith is join for a node of another configuration.
func joinWith(tb testing.TB, c MemberConfig, members ...*member) *weir.Node {
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

// newMembers starts members for a test or benchmark, which they do not outlive.
func newMembers(tb testing.TB, n, replicas int) []*member {
	members := startMembers(tb, n, replicas)
	tb.Cleanup(func() { endMembers(tb, members) })
	return members
}

// startMembers starts so many, and waits until each has met the others.
func startMembers(tb testing.TB, n, replicas int) []*member {
	return startMembersWith(tb, n, MemberConfig{Replicas: replicas})
}

// startMembersWith is startMembers for nodes of another configuration.
func startMembersWith(tb testing.TB, n int, c MemberConfig) []*member {
	var members []*member
	for len(members) < n {
		members = append(members, startMember(tb, c))
		c.Join = []string{members[0].addr}
	}
	call[Met](tb, members, "Member.Meet", n)
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
	started time.Time
	limiter *weir.Limiter
	load    *steady
	frozen  *frozenSide
}

func serveMember(ready func(string), done <-chan struct{}) error {
	s := new(service)
	if err := worker.ServeRPC("Member", s, ready, done); err != nil {
		return err
	}
	if s.load != nil {
		s.load.end()
	}
	s.frozen.end()
	if s.node == nil {
		return nil
	}
	return s.node.Close()
}

// Start starts the node, and answers with its address.
func (s *service) Start(c MemberConfig, addr *string) (err error) {
	s.started = time.Now()
	if s.node, err = startNode(c); err != nil {
		return err
	}
	*addr = addrOf(s.node)
	s.limiter, err = s.node.Limiter(limitOf("sliding_window"))
	return err
}

// Met says how long after its start a node was ready, and what it held then.
type Met struct {
	Took   time.Duration
	Counts int
}

// Meet waits until the node is ready and so many serve.
func (s *service) Meet(members int, met *Met) error {
	if err := untilMet(s.node, members, memberWait); err != nil {
		return err
	}
	*met = Met{time.Since(s.started), s.node.Stats().Keys}
	return nil
}

// Fill asks once for each of a million keys.
func (s *service) Fill(callers int, _ *int) error {
	return s.all(worker.Million, callers, func(key string) error {
		_, err := s.limiter.Allow(context.Background(), key)
		return err
	})
}

// all calls do with so many keys, from so many callers at a time.
func (s *service) all(keys, callers int, do func(key string) error) error {
	var asking sync.WaitGroup
	errs := make([]error, callers)
	for c := range callers {
		asking.Go(func() {
			var key [worker.KeyBytes]byte
			for i := c; i < keys && errs[c] == nil; i += callers {
				errs[c] = do(string(worker.AppendKey(key[:0], i)))
			}
		})
	}
	asking.Wait()
	return errors.Join(errs...)
}

// Reset resets that many keys, some at a time.
func (s *service) Reset(keys int, _ *int) error {
	return s.all(keys, fillers, func(key string) error { return s.limiter.Reset(context.Background(), key) })
}

// Exact waits until a hundred keys in a row are decided by those with authority.
func (s *service) Exact(_ int, _ *int) error { return untilExact(s.limiter, memberWait) }

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

// Settle waits until the node has nothing left to send, for twice as long as its
// Stats can be old at least. Nobody may be asking meanwhile.
func (s *service) Settle(_ int, _ *int) error {
	for begun := time.Now(); time.Since(begun) < memberWait; {
		time.Sleep(2 * statsAge)
		if s.node.Stats().Stream.Unsent == 0 {
			return nil
		}
	}
	return fmt.Errorf("bench: after %v %d counts are still to be sent", memberWait, s.node.Stats().Stream.Unsent)
}

const statsAge = 25 * time.Millisecond
