package weir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/full"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/view"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// giveUp bounds a wait that only a fault makes as long: a test waits for what is to happen, and
// a busy machine may take its time.
const giveUp = time.Minute

// eventually waits until done reports true, and fails the test after giveUp. It calls done in the
// test's own goroutine, which may so end the test.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for begun := time.Now(); !done(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > giveUp {
			t.Fatalf("not within %v: %s", giveUp, what)
		}
	}
}

// runningLate measures how late this process runs, from now until Stop. What a check took,
// less what the process was late meanwhile, is the check's own.
func runningLate() *lab.Lateness {
	late := new(lab.Lateness)
	late.Start(time.Millisecond, 0)
	return late
}

// decisions counts what decided checks. Those of Source 0 are made while the members that are to
// decide did not answer each other.
type decisions map[Source]int

// strayed reports whether others than an owner decided a check, or what it had lent or denied.
func (d decisions) strayed() bool {
	for source, n := range d {
		if n > 0 && (source == 0 || source > Relayed && source < Pushback) {
			return true
		}
	}
	return false
}

// inTouch reports whether each of these nodes hears the others, and none of them has stalled.
func inTouch(ls []*Limiter) bool {
	for _, l := range ls {
		v := l.node.handover.View()
		for i, m := range v.Members {
			if slices.ContainsFunc(ls, func(o *Limiter) bool { return o.node.name() == m.Name }) && (!v.Direct[i] || v.Stalled[i]) {
				return false
			}
		}
	}
	return true
}

// unanswered is what play returns if a member did not answer in time.
func unanswered() decisions { return decisions{0: 1} }

// name is what other nodes call this one.
func (n *Node) name() string { v := n.handover.View(); return v.Members[v.Self].Name }

// whileHealthy repeats play until all members answer in time. Exact figures hold only then: while a
// process stands still, others decide in its stead. play returns the Sources of its decisions, and
// judges exact figures only if none strayed.
func whileHealthy(t *testing.T, play func(t *testing.T) decisions) {
	const attempts = 20
	for attempt := 1; !t.Failed(); attempt++ {
		healthy := false
		t.Run(fmt.Sprint("attempt ", attempt), func(t *testing.T) {
			decided := play(t)
			if healthy = !decided.strayed(); !healthy {
				t.Logf("a member did not answer in time: decided by %v", decided)
			}
		})
		if healthy {
			return
		}
		require.Less(t, attempt, attempts, "at no attempt did the machine let all members answer in time")
	}
}

// byOwners skips this attempt of whileHealthy unless an owner, its lease or its denial made each
// of these decisions. Nodes of a fleet relay a check only if one of them stood still.
func byOwners(t *testing.T, ds ...Decision) {
	t.Helper()
	decided := make(decisions)
	for _, d := range ds {
		decided[d.Source]++
	}
	if decided.strayed() || decided[Relayed] > 0 {
		t.Skipf("a member did not answer in time: decided by %v", decided)
	}
}

// fleet starts nodes on loopback sockets and waits until all hear each other.
// Timeout is two seconds, so that only a fault makes a check time out.
func fleet(t testing.TB, nodes int, edit func(i int, cfg *Config)) []*Node {
	t.Helper()
	var fleet []*Node
	for i := range nodes {
		cfg := Config{Name: fmt.Sprintf("node%d", i), Bind: "127.0.0.1:0", Timeout: 2 * time.Second, Logger: quiet}
		for _, n := range fleet {
			v := n.handover.View()
			cfg.Join = append(cfg.Join, v.Members[v.Self].Addr)
		}
		if edit != nil {
			edit(i, &cfg)
		}
		n, err := Start(t.Context(), cfg)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, n.Close()) })
		fleet = append(fleet, n)
	}
	eventually(t, "all are ready and hear each other", func() bool {
		for _, n := range fleet {
			if !n.Ready() {
				return false
			}
		}
		return hearEachOther(fleet)
	})
	return fleet
}

// startAt starts a node at a port that is held for it, and tries again while the port is in use. A
// process that another test starts has copies of this one's sockets until it executes its program.
func startAt(t testing.TB, cfg Config) *Node {
	t.Helper()
	var n *Node
	var err error
	eventually(t, "the port is free again", func() bool {
		n, err = Start(t.Context(), cfg)
		return !errors.Is(err, syscall.EADDRINUSE)
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

func hearEachOther(nodes []*Node) bool {
	for _, n := range nodes {
		v := n.handover.View()
		if len(v.Members) != len(nodes) {
			return false
		}
		for i := range v.Members {
			for j := range v.Members {
				if !v.Hears[i][j] {
					return false
				}
			}
		}
	}
	return true
}

// limiters are one limit on every node.
func limiters(t testing.TB, nodes []*Node, l Limit) []*Limiter {
	t.Helper()
	var ls []*Limiter
	for _, n := range nodes {
		one, err := n.Limiter(l)
		require.NoError(t, err)
		ls = append(ls, one)
	}
	return ls
}

// ownedBy finds a key that a node owns.
func ownedBy(t testing.TB, l *Limiter, owner *Node) string {
	t.Helper()
	v := owner.handover.View()
	return keyOf(t, l, v.Members[v.Self].Name)
}

// keyOf finds a key that the member of a name owns.
func keyOf(t testing.TB, l *Limiter, name string) string {
	t.Helper()
	for i := range 10_000 {
		if key := fmt.Sprintf("key %d", i); l.Owner(key).Name == name {
			return key
		}
	}
	t.Fatal("no key of 10,000 is owned by ", name)
	return ""
}

func TestAnyMixOfNodesAdmitsTheLimitAndNotOneMore(t *testing.T) {
	t.Parallel()
	nodes := fleet(t, 3, nil)
	for _, algorithm := range algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			ls := limiters(t, nodes, Limit{Name: algorithm.String(), Algorithm: algorithm, Rate: 100, Per: time.Hour})
			for run := range full.Pick(t, 5, 20) {
				attempt := 0
				whileHealthy(t, func(t *testing.T) decisions {
					attempt++
					return admitsTheLimit(t, ls, fmt.Sprint("run ", run, ", attempt ", attempt), 64, 10_000)
				})
			}
		})
	}
}

// admitsTheLimit has so many callers, each with one of these limiters, ask for a key of a limit
// of 100, so often together.
func admitsTheLimit(t *testing.T, ls []*Limiter, key string, callers, asks int) decisions {
	var (
		mu       sync.Mutex
		admitted int
		decided  = make(decisions)
		wait     sync.WaitGroup
	)
	for g := range callers {
		wait.Go(func() {
			own, allowed := make(decisions), 0
			for i := g; i < asks; i += callers {
				d, err := ls[g%len(ls)].Allow(t.Context(), key)
				if err != nil {
					t.Error(err)
				}
				own[d.Source]++
				if d.Allowed {
					allowed++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			admitted += allowed
			for source, n := range own {
				decided[source] += n
			}
		})
	}
	wait.Wait()
	if !decided.strayed() {
		require.Equal(t, 100, admitted)
	}
	require.LessOrEqual(t, admitted, 200, "twice the limit where the owner is late")
	return decided
}

func TestAllowAllAcrossOwnersSpendsOnAllOrOnNone(t *testing.T) {
	t.Parallel()
	nodes := fleet(t, 3, nil)
	few := limiters(t, nodes, Limit{Name: "few", Algorithm: SlidingLog, Rate: 5, Per: time.Hour})
	many := limiters(t, nodes, Limit{Name: "many", Algorithm: TokenBucket, Rate: 1000, Per: 365 * 24 * time.Hour})
	for i, owner := range nodes {
		whileHealthy(t, func(t *testing.T) decisions {
			asks := []Ask{
				{Limiter: few[0], Key: ownedBy(t, few[0], owner)},
				{Limiter: many[0], Key: ownedBy(t, many[0], nodes[(i+1)%3]), Units: 10},
				{Limiter: many[0], Key: ownedBy(t, many[0], nodes[(i+2)%3]), Units: 10},
			}
			for _, a := range asks {
				eventually(t, "it is reset", func() bool { return a.Limiter.Reset(t.Context(), a.Key) == nil })
			}
			for range 5 {
				ds, err := nodes[0].AllowAll(t.Context(), asks...)
				require.NoError(t, err)
				byOwners(t, ds...)
				require.True(t, ds.Allowed())
			}
			for range 20 {
				ds, err := nodes[0].AllowAll(t.Context(), asks...)
				require.NoError(t, err)
				byOwners(t, ds...)
				require.False(t, ds.Allowed())
				require.EqualValues(t, 950, ds[1].Remaining)
			}
			for _, a := range asks[1:] {
				eventually(t, fmt.Sprintf("owner %d: a denial costs the others nothing", i), func() bool {
					d, err := many[0].Peek(t.Context(), a.Key)
					require.NoError(t, err)
					byOwners(t, d)
					return d.Remaining == 950
				})
			}
			return nil
		})
	}
}

// Many AllowAlls at once, over limits of three owners of which the tightest is
// full after 50: never more, and what was refunded is all back.
func TestConcurrentAllowAllsNeverOverAdmit(t *testing.T) {
	t.Parallel()
	whileHealthy(t, func(t *testing.T) decisions {
		nodes := fleet(t, 3, nil)
		tight := limiters(t, nodes, Limit{Name: "tight", Algorithm: SlidingLog, Rate: 50, Per: time.Hour})
		loose := limiters(t, nodes, Limit{Name: "loose", Algorithm: SlidingLog, Rate: 1000, Per: time.Hour})
		keys := []string{ownedBy(t, tight[0], nodes[0]), ownedBy(t, loose[0], nodes[1]), ownedBy(t, loose[0], nodes[2])}
		var (
			mu       sync.Mutex
			admitted int
			decided  = make(decisions)
			wait     sync.WaitGroup
		)
		for g := range 16 {
			wait.Go(func() {
				for range 40 {
					ds, err := nodes[g%3].AllowAll(t.Context(),
						Ask{Limiter: tight[g%3], Key: keys[0], Units: 1}, Ask{Limiter: loose[g%3], Key: keys[1], Units: 1}, Ask{Limiter: loose[g%3], Key: keys[2], Units: 1})
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					for _, d := range ds {
						decided[d.Source]++
					}
					if ds.Allowed() {
						admitted++
					}
					mu.Unlock()
				}
			})
		}
		wait.Wait()
		require.LessOrEqual(t, admitted, 100, "twice the limit where the owner is late")
		if decided.strayed() {
			return decided
		}
		require.Equal(t, 50, admitted)
		for _, key := range keys[1:] {
			eventually(t, "what was refunded is back", func() bool { return remaining(t, loose[0], key) == 950 })
		}
		return decided
	})
}

func TestResetForgetsOnEveryNodeAndNamesWhoWasMissed(t *testing.T) {
	t.Parallel()
	nodes := fleet(t, 3, nil)
	ls := limiters(t, nodes, Limit{Name: "test", Rate: 10, Per: time.Hour})
	key := ownedBy(t, ls[0], nodes[1])
	allow(t, ls[0], key, 10)
	eventually(t, "the reset reaches all", func() bool { return ls[2].Reset(t.Context(), key) == nil })
	eventually(t, "nothing of it is left", func() bool { return remaining(t, ls[0], key) == 10 })

	v := nodes[2].handover.View()
	gone := v.Members[v.Self].Name
	require.NoError(t, nodes[2].Close())
	eventually(t, "it is not heard any more", func() bool {
		v := nodes[0].handover.View()
		return !v.Direct[v.Named[view.NameHash(gone)]]
	})
	eventually(t, "the reset names the one that has gone, and no other", func() bool {
		var partial *ErrPartial
		require.ErrorAs(t, ls[0].Reset(t.Context(), key), &partial)
		require.Contains(t, partial.Members, gone)
		return len(partial.Members) == 1
	})
}

func TestAnOwnerThatHasGoneIsAnAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy PartitionPolicy
		source Source
		admits int64 // of 100, in a fleet of 2
	}{
		{MajorityShare, Budget, 50},
		{FairShare, Budget, 50},
		{FailOpen, FailedOpen, 100},
		{FailClosed, FailedClosed, 0},
	} {
		t.Run(fmt.Sprint(c.source, c.policy), func(t *testing.T) {
			t.Parallel()
			nodes := fleet(t, 2, nil)
			ls := limiters(t, nodes, Limit{Name: "test", Rate: 100, Per: time.Hour, Partition: c.policy})
			key := ownedBy(t, ls[0], nodes[1])
			require.NoError(t, nodes[1].Close())
			var admitted int64
			for range 200 {
				d, err := ls[0].Allow(t.Context(), key)
				require.NoError(t, err)
				require.Equal(t, c.source, d.Source)
				if d.Allowed {
					admitted++
				}
			}
			require.Equal(t, c.admits, admitted)
		})
	}
}

// Callers with deadlines that are shorter than the way: what they are told and
// what the owner counts in the end agree: its own late answers are refunded, and
// it is told what budgets granted instead.
// What is lent too late may stay spent, so nothing is lent.
func TestImpatientCallersSpendNothingTwice(t *testing.T) {
	t.Parallel()
	nodes := fleet(t, 2, nil)
	ls := limiters(t, nodes, Limit{Name: "test", Algorithm: SlidingLog, Rate: 100_000, Per: time.Hour, NoLeases: true})
	key := ownedBy(t, ls[0], nodes[1])
	var forwarded, budget atomic.Int64
	var wait sync.WaitGroup
	for range 500 {
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Microsecond)
			defer cancel()
			d, err := ls[0].Allow(ctx, key)
			if err != nil || !d.Allowed {
				t.Error(d, err)
			}
			if d.Source == Forwarded {
				forwarded.Add(1)
			} else {
				budget.Add(1)
			}
		})
	}
	wait.Wait()
	spent := func() int64 { return 100_000 - remaining(t, ls[1], key) }
	defer func() {
		s := nodes[0].Stats()
		t.Logf("the owner counts %d of 500: %d answered by it, %d from the budget, %d refunded; outages %d, timeouts %d, late %d, dropped %d",
			spent(), forwarded.Load(), budget.Load(), s.LateUnits, s.Outage.Count, s.Cluster.Timeouts, s.Cluster.Late, s.Cluster.Dropped)
	}()
	settled := 0 // since when the owner counts each unit that a caller was granted, and no other
	eventually(t, "the owner counts each unit that was granted, and no other", func() bool {
		if settled++; spent() != 500 {
			settled = 0
		}
		return settled == 300
	})
}

func TestMembersAreTheRoster(t *testing.T) {
	t.Parallel()
	nodes := fleet(t, 3, nil)
	for i, n := range nodes {
		members := n.Members()
		require.Len(t, members, 3)
		for j, m := range members {
			require.True(t, strings.HasPrefix(m.Name, fmt.Sprintf("node%d-", j)))
			require.Equal(t, i == j, m.Self)
			require.Equal(t, cluster.Serving, m.State)
		}
	}
}
