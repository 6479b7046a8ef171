package main

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/bench/internal/worker"
	"github.com/weir-go/weir/cluster"
)

func TestTheSecondProcessAnswersACheck(t *testing.T) {
	f := newForwarded(t, 1, MemberConfig{})
	// On a busy machine the answer may come too late, and this node then decides by itself.
	for i, begun := 0, time.Now(); ; i++ {
		d, err := f.limiter.Allow(context.Background(), f.keys[i])
		require.NoError(t, err)
		require.True(t, d.Allowed)
		if d.Source == weir.Forwarded {
			require.EqualValues(t, burst-1, d.Remaining)
			return
		}
		require.Less(t, time.Since(begun), worker.StartWait, "%+v", d)
	}
}

func TestAnEchoComesBackToItsCaller(t *testing.T) {
	const callers = 8
	e := dialEcho(t, start(t, "echo").addr, callers)
	f, err := newLoad(callers).round(50*time.Millisecond, e.ask)
	require.NoError(t, err)
	require.Positive(t, f.perSecond)
	require.LessOrEqual(t, f.p50, f.p99)
	for _, c := range e.answered {
		require.Empty(t, c, "an answer was not waited for")
	}
}

func TestARoundEndsWhenTheEchoDies(t *testing.T) {
	p, err := startRole("echo")
	require.NoError(t, err)
	e := dialEcho(t, p.addr, 2)
	require.NoError(t, e.ask(0))
	require.NoError(t, p.end())
	_, err = newLoad(2).round(time.Minute, e.ask)
	require.ErrorIs(t, err, errEchoGone)
}

func TestAMemberTellsWhatItsLoadHasSeen(t *testing.T) {
	members := startMembers(t, 2, MemberConfig{})
	defer func() { endMembers(t, members) }()
	call[int](t, members, "Member.Load", 1000)
	require.Eventually(t, func() bool {
		lap := merge(call[Lap](t, members, "Member.Lap", 0))
		return len(lap.Latencies) > 0 && lap.Strays == 0
	}, worker.StartWait, 20*time.Millisecond, "no lap without strays")
}

// Each of the callers is due ten times during the stall, and five times in its
// first half.
func TestAStallIsAsManySlowChecksAsItKeptWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall = 100 * time.Millisecond
		over := time.Now().Add(stall)
		s := newSteady(steadyCallers*10*int(time.Second/stall), func() weir.Source {
			time.Sleep(time.Until(over))
			return weir.Owner
		})
		time.Sleep(2 * stall)
		s.end()
		slow := 0
		for _, took := range s.cut().Latencies {
			if took > stall/2 {
				slow++
			}
		}
		require.GreaterOrEqual(t, slow, 4*steadyCallers, "checks were kept waiting and do not count as slow")
	})
}

func TestAQuotaIsForOneProcessAndGoesWithIt(t *testing.T) {
	p, err := startRole("echo")
	require.NoError(t, err)
	q, err := newCPUQuota(p.PID(), busyQuota, busyPeriod)
	if err != nil {
		require.NoError(t, p.end())
		t.Skipf("no cgroup can be made here: %v", err)
	}
	e := dialEcho(t, p.addr, 1)
	require.NoError(t, e.ask(0), "it goes on within its quota")
	require.NoError(t, p.end())
	require.NoError(t, q.remove())
	_, err = newCPUQuota(os.Getpid(), -1, 0)
	require.Error(t, err, "a quota that the kernel refuses")
}

func TestTheEchoMovesAsManyBytesAsACheck(t *testing.T) { synctest.Test(t, testEchoBytes) }

func testEchoBytes(t *testing.T) {
	asker, owner := newRoster(2), &served{roster: newRoster(2)}
	owner.view.Self, owner.view.Members[0].Peer, owner.view.Members[1].Peer = 1, mute{}, nil
	n, err := weir.Start(context.Background(), weir.Config{Cluster: owner, Logger: quiet()})
	require.NoError(t, err)
	defer n.Close()
	wire := &wire{to: owner.handler}
	asker.view.Members[1].Peer = wire
	m, err := weir.Start(context.Background(), weir.Config{Cluster: asker, Logger: quiet()})
	require.NoError(t, err)
	defer m.Close()
	l, err := m.Limiter(limitOf("token_bucket"))
	require.NoError(t, err)
	key := worker.KeysThat(1, func(key string) bool { return !l.Owner(key).Self })[0]

	d, err := l.Allow(context.Background(), key)
	require.NoError(t, err)
	require.Equal(t, weir.Forwarded, d.Source)
	require.Equal(t, requestBytes, frameHeaderBytes+wire.asked)
	require.Equal(t, answerBytes, frameHeaderBytes+len(wire.answer))
}

// served is a roster that keeps the node above it.
type served struct {
	*roster
	handler cluster.Handler
}

func (s *served) Start(_ context.Context, h cluster.Handler) error {
	s.handler = h
	return nil
}

// wire is a peer that asks a node in this process, and measures.
type wire struct {
	mute
	to     cluster.Handler
	asked  int
	answer []byte
}

func (w *wire) Ask(_ context.Context, request, answer []byte, _ time.Duration) ([]byte, error) {
	one := &wire{}
	b := cluster.NewBatch("node-00", one)
	b.Requests = [][]byte{request}
	w.to.Serve(b)
	if len(one.answer) > len(w.answer) { // what nodes tell each other at the same time is shorter
		w.asked, w.answer = len(request), one.answer
	}
	return append(answer[:0], one.answer...), nil
}

func (w *wire) Reply(_ int, body []byte) { w.answer = append([]byte(nil), body...) }
func (w *wire) Later(int) cluster.Later  { return func([]byte) {} }

func TestKeysAreDistinctAndOfOneLength(t *testing.T) {
	seen := make(map[string]bool)
	for _, key := range worker.KeysThat(100_000, worker.AnyKey) {
		if len(key) != worker.KeyBytes || seen[key] {
			t.Fatalf("%q comes twice, or has not %d bytes", key, worker.KeyBytes)
		}
		seen[key] = true
	}
}

// In virtual time, in which the node hears its roster however late this process runs.
func TestAnOwnerIsAskedOnlyForItsOwnKeys(t *testing.T) { synctest.Test(t, testOwnKeys) }

func testOwnKeys(t *testing.T) {
	l, err := newOwner(t, 1000).Limiter(limitOf("sliding_window"))
	require.NoError(t, err)
	for _, key := range ownedBy(l, 1000) {
		d, err := l.Allow(context.Background(), key)
		require.NoError(t, err)
		require.Equal(t, weir.Owner, d.Source)
	}
}
