//go:build unix

package processtests

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/full"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/realtime"
	"github.com/weir-go/weir/snapshot"
)

// keeperVariable makes the test binary a node that writes snapshots. It holds a keeper.
const keeperVariable = "WEIR_TEST_KEEPER"

// keeper is how such a node starts. It checks Keys keys of each of Limits.
type keeper struct {
	Name, Bind, Dir string
	Join            []string
	Limits          []weir.Limit
	Keys            int
}

// Orders to a keeper. It carries them out one after the other, and reports each.
const (
	loadOrder  = "load"  // callers check all keys from then on; no report
	fillOrder  = "fill"  // take one unit of each key
	spendOrder = "spend" // take what is left of each key
	stallOrder = "stall" // the next snapshot stops halfway, for ever
	leaveOrder = "leave" // the callers stop, and the node leaves
)

const (
	keeperCallers = 3 // of each node under load
	// stallsAfter is more than the header, so that it is halfway, and less than what a
	// fillOrder of some thousand keys writes.
	stallsAfter = 128 << 10
)

// keeperReport is a line of a keeper.
type keeperReport struct {
	Done     string         // the order that is carried out; "ready" once the node is
	Loaded   int            // counts, when the node is ready
	Admitted map[spot]int64 // by the order
	Left     string         // the error of Leave
	Unit     *spot          // one unit of it was admitted to a caller
	Strayed  bool           // an answer to a caller was late: two members may have spent it
	At       int64          // when, as time of day: after Allow has returned, or before a snapshot was begun
	Saved    bool           // that snapshot is kept
	Stalled  bool           // that snapshot has stopped halfway
	Failed   string         // why the process ends
}

// spot is a key of a limit.
type spot struct{ Limit, Key int }

func (s spot) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%d/%d", s.Limit, s.Key), nil }
func (s *spot) UnmarshalText(b []byte) error {
	_, err := fmt.Sscanf(string(b), "%d/%d", &s.Limit, &s.Key)
	return err
}

// reportingStore reports what it keeps.
type reportingStore struct {
	snapshot.Store
	stall atomic.Bool
	say   func(keeperReport)
}

func (r *reportingStore) Save(ctx context.Context, node string, write func(io.Writer) error) error {
	began, stall := time.Now().UnixNano(), r.stall.Load()
	err := r.Store.Save(ctx, node, func(w io.Writer) error {
		if stall {
			w = &stallingWriter{w: w, left: stallsAfter, stalled: func() { r.say(keeperReport{Stalled: true}) }}
		}
		return write(w)
	})
	if err == nil {
		r.say(keeperReport{Saved: true, At: began})
	}
	return err
}

// stallingWriter writes no more, and does not return, after some bytes.
type stallingWriter struct {
	w       io.Writer
	left    int
	stalled func()
}

func (s *stallingWriter) Write(b []byte) (int, error) {
	if s.left -= len(b); s.left < 0 {
		s.stalled()
		select {}
	}
	return s.w.Write(b)
}

// runKeeper is the process of a keeper.
func runKeeper(ctx, _ context.Context, k keeper, orders <-chan string, tell func(any) error) error {
	var telling sync.Mutex
	say := func(r keeperReport) {
		telling.Lock()
		defer telling.Unlock()
		_ = tell(r) // the parent has ended
	}
	dir, err := snapshot.OpenDir(k.Dir, snapshot.DirOptions{})
	if err != nil {
		return err
	}
	store := &reportingStore{Store: dir, say: say}
	n, err := weir.Start(ctx, weir.Config{
		Name: k.Name, Bind: k.Bind, Join: k.Join, JoinTimeout: realtime.GiveUp, Timeout: time.Second,
		Snapshots: store, SnapshotEvery: time.Second, Logger: quiet,
	})
	if err != nil {
		return err
	}
	defer n.Close()
	for !n.Ready() || len(n.Members()) != len(k.Join)+1 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		time.Sleep(time.Millisecond)
	}
	limiters := make([]*weir.Limiter, len(k.Limits))
	for i, l := range k.Limits {
		if limiters[i], err = n.Limiter(l); err != nil {
			return err
		}
	}
	say(keeperReport{Done: "ready", Loaded: n.Stats().Snapshots.Loaded})

	calling, hangUp := context.WithCancel(ctx)
	defer hangUp()
	var callers sync.WaitGroup
	for o := range orders {
		done := keeperReport{Done: o}
		switch o {
		case loadOrder:
			for range keeperCallers {
				callers.Go(func() { call(calling, limiters, k.Keys, say) })
			}
			continue
		case fillOrder, spendOrder:
			if done.Admitted, err = takeAll(ctx, limiters, k.Keys, o == spendOrder); err != nil {
				return err
			}
		case stallOrder:
			store.stall.Store(true)
		case leaveOrder:
			hangUp()
			callers.Wait()
			leaving, cancel := context.WithTimeout(ctx, realtime.GiveUp)
			if err := n.Leave(leaving); err != nil {
				done.Left = err.Error()
			}
			cancel()
		}
		say(done)
	}
	return nil
}

// call checks keys at random, and reports each unit that is admitted.
func call(ctx context.Context, limiters []*weir.Limiter, keys int, say func(keeperReport)) {
	for ctx.Err() == nil {
		at := spot{rand.IntN(len(limiters)), rand.IntN(keys)}
		d, err := limiters[at.Limit].Allow(context.Background(), fmt.Sprint(at.Key))
		if err == nil && d.Allowed {
			say(keeperReport{Unit: &at, At: time.Now().UnixNano()})
		}
		if err != nil || (decisions{d.Source: 1}).Strayed() {
			say(keeperReport{Strayed: true})
		}
		time.Sleep(500 * time.Microsecond) // the load of a caller that does other work as well
	}
}

// takeAll takes one unit of each key, or all that is left of it.
func takeAll(ctx context.Context, limiters []*weir.Limiter, keys int, all bool) (admitted map[spot]int64, err error) {
	admitted = make(map[spot]int64)
	for i, l := range limiters {
		for key := range keys {
			for n := int64(1); ; {
				d, err := l.AllowN(ctx, fmt.Sprint(key), n)
				if err != nil {
					return nil, err
				}
				if d.Allowed {
					admitted[spot{i, key}] += n
				}
				if !all || n == 1 && !d.Allowed {
					break
				}
				n = max(1, d.Remaining/2)
			}
		}
	}
	return admitted, nil
}

// kept is what a keeper has reported.
type kept struct {
	*lab.Child

	mu      sync.Mutex
	done    map[string]keeperReport // by order
	saved   []int64                 // when each snapshot was begun
	units   map[spot][]int64        // when each was admitted
	strayed int64
	stalled bool
}

// startKeeper starts one, which the test's end stops.
func startKeeper(t *testing.T, k keeper) *kept {
	t.Helper()
	c := &kept{done: make(map[string]keeperReport), units: make(map[spot][]int64)}
	var err error
	c.Child, err = lab.StartJSON(keeperVariable, k, c.take)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Stop(realtime.GiveUp) })
	return c
}

func (c *kept) take(r keeperReport) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.Unit != nil:
		c.units[*r.Unit] = append(c.units[*r.Unit], r.At)
	case r.Saved:
		c.saved = append(c.saved, r.At)
	case r.Strayed:
		c.strayed++
	case r.Stalled:
		c.stalled = true
	case r.Failed != "":
		c.done["failed"] = r
	default:
		c.done[r.Done] = r
	}
}

// await waits until something is reported.
func (c *kept) await(t *testing.T, what string, reported func() bool) {
	t.Helper()
	realtime.Eventually(t, what, func() bool {
		select {
		case <-c.Ended():
			t.Fatalf("waiting for: %s: the process has ended: %s %s", what, c.done["failed"].Failed, c.How())
		default:
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		return reported()
	})
}

// awaitDone waits until an order is carried out.
func (c *kept) awaitDone(t *testing.T, order string) (r keeperReport) {
	t.Helper()
	c.await(t, order, func() (done bool) {
		r, done = c.done[order]
		return done
	})
	return r
}

// awaitSaved waits for so many snapshots that were begun from now on.
func (c *kept) awaitSaved(t *testing.T, n int) {
	t.Helper()
	now := time.Now().UnixNano()
	c.await(t, "snapshots", func() bool {
		since := 0
		for _, began := range c.saved {
			if began >= now {
				since++
			}
		}
		return since >= n
	})
}

// startKeepers starts one with each directory, at one moment, and waits until all are ready.
func startKeepers(t *testing.T, names string, dirs []string, limits []weir.Limit, keys int) (all []*kept) {
	t.Helper()
	addrs := freePorts(t, len(dirs))
	for i, dir := range dirs {
		others := slices.Delete(slices.Clone(addrs), i, i+1)
		all = append(all, startKeeper(t, keeper{Name: fmt.Sprint(names, i), Bind: addrs[i], Join: others, Dir: dir, Limits: limits, Keys: keys}))
	}
	for _, c := range all {
		c.awaitDone(t, "ready")
	}
	return all
}

// freePorts returns addresses that nobody listens at. They are below the ports that a system
// gives to others before the keepers take them.
func freePorts(t *testing.T, n int) (addrs []string) {
	t.Helper()
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", 12_000+rand.IntN(18_000))
		tcp, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		udp, err := net.ListenPacket("udp", addr)
		require.NoError(t, tcp.Close())
		if err != nil {
			continue
		}
		require.NoError(t, udp.Close())
		if addrs = append(addrs, addr); len(addrs) == n {
			return addrs
		}
	}
	t.Fatal("there are no free ports")
	return nil
}

// keptLimits are of each algorithm, of hot keys that owners lend and of keys that they do not.
// They recover nothing while a test lasts.
func keptLimits(rate int64) (limits []weir.Limit) {
	for _, a := range algorithms {
		for _, exact := range []bool{false, true} {
			limits = append(limits, weir.Limit{
				Name: fmt.Sprint(a, exact), Algorithm: a, Rate: rate, Per: 365 * 24 * time.Hour, NoLeases: exact,
			})
		}
	}
	return limits
}

// stopped is what a stop of all processes has come to.
type stopped struct {
	limits  []weir.Limit
	keys    int
	before  map[spot]int64 // what was admitted before the stop
	since   map[spot]int64 // of that, since the last snapshots were begun
	after   map[spot]int64 // what was admitted after the next start
	strayed int64          // answers that were late
}

// excess is how much more than its limit was admitted of a key.
func (o *stopped) excess(at spot) int64 { return o.before[at] + o.after[at] - o.limits[at.Limit].Rate }

// each calls f with each key of each limit.
func (o *stopped) each(f func(at spot, l weir.Limit)) {
	for i, l := range o.limits {
		for key := range o.keys {
			f(spot{i, key}, l)
		}
	}
}

// log logs what was admitted of all keys together.
func (o *stopped) log(t *testing.T) {
	var before, since, again, lost int64
	o.each(func(at spot, _ weir.Limit) {
		before, since = before+o.before[at], since+o.since[at]
		again, lost = again+max(0, o.excess(at)), lost+max(0, -o.excess(at))
	})
	t.Logf("of %d units, %d were spent since the last snapshots; %d were admitted again, %d never; %d answers were late", before, since, again, lost, o.strayed)
}

// stopAndStart has processes check keys, stops all of them at once, starts others of other
// names on their directories, and has these spend what is left.
func stopAndStart(t *testing.T, processes int, stop func([]*kept)) (o stopped) {
	t.Helper()
	o = stopped{limits: keptLimits(5000), keys: 2, before: make(map[spot]int64), since: make(map[spot]int64), after: make(map[spot]int64)}
	dirs := make([]string, processes)
	for i := range dirs {
		dirs[i] = t.TempDir()
	}
	old := startKeepers(t, "old", dirs, o.limits, o.keys)
	for _, c := range old {
		require.NoError(t, c.Order(loadOrder))
	}
	for _, c := range old {
		c.awaitSaved(t, 2)
	}
	stop(old)
	oldest := int64(math.MaxInt64) // of the last snapshots
	for _, c := range old {
		<-c.Ended()
		oldest = min(oldest, c.saved[len(c.saved)-1])
	}
	for _, c := range old {
		o.strayed += c.strayed
		for at, units := range c.units {
			o.before[at] += int64(len(units))
			for _, when := range units {
				if when >= oldest {
					o.since[at]++
				}
			}
		}
	}
	slices.Reverse(dirs)
	next := startKeepers(t, "next", dirs, o.limits, o.keys)
	for _, c := range next {
		require.NoError(t, c.Order(spendOrder))
	}
	for _, c := range next {
		for at, units := range c.awaitDone(t, spendOrder).Admitted {
			o.after[at] += units
		}
	}
	return o
}

func TestAKillOfAllProcessesAdmitsAgainWhatWasSpentSinceTheLastSnapshotsAtMost(t *testing.T) {
	full.Only(t, "TestACrashOfAllNodesLosesWhatWasSpentSinceTheLastSnapshotsAndNoMore, and package snapshot, whose tests kill a process that saves")
	t.Parallel()
	for _, processes := range []int{3, 5} {
		t.Run(fmt.Sprintf("%d processes", processes), func(t *testing.T) {
			t.Parallel()
			o := stopAndStart(t, processes, func(all []*kept) {
				for _, c := range all {
					require.NoError(t, c.Kill())
				}
			})
			o.log(t)
			o.each(func(at spot, l weir.Limit) {
				require.Greater(t, o.before[at], o.since[at], "%s: the snapshots have something of it", l.Name)
				require.LessOrEqual(t, o.excess(at), o.since[at], "%s: %d before, %d after", l.Name, o.before[at], o.after[at])
				if l.NoLeases { // what the killed callers asked for may be spent
					require.GreaterOrEqual(t, o.excess(at), -int64(processes*keeperCallers)-o.strayed, "%s: nothing counts twice", l.Name)
				}
			})
		})
	}
}

func TestAnOrderlyStopOfAllProcessesAdmitsNothingAgain(t *testing.T) {
	full.Only(t, "TestCountsOutliveAnOrderlyStopOfAllNodes")
	t.Parallel()
	for _, processes := range []int{3, 5} {
		t.Run(fmt.Sprintf("%d processes", processes), func(t *testing.T) {
			t.Parallel()
			o := stopAndStart(t, processes, func(all []*kept) {
				for _, c := range all {
					require.NoError(t, c.Order(leaveOrder))
				}
				for _, c := range all {
					require.Empty(t, c.awaitDone(t, leaveOrder).Left)
				}
				for _, c := range all {
					require.NoError(t, c.Stop(realtime.GiveUp))
				}
			})
			o.log(t)
			o.each(func(at spot, l weir.Limit) {
				require.LessOrEqual(t, o.excess(at), int64(0), "%s: %d before, %d after", l.Name, o.before[at], o.after[at])
				if l.NoLeases { // of others, what is lent to a node that leaves may stay spent
					require.GreaterOrEqual(t, o.excess(at), -o.strayed, "%s: nothing counts twice", l.Name)
				}
			})
		})
	}
}

func TestAKillWhileASnapshotIsWrittenLeavesTheOneBefore(t *testing.T) {
	full.Only(t, "package snapshot, whose tests kill a process that saves")
	t.Parallel()
	const keys = 10_000
	limits := []weir.Limit{{Name: "once", Algorithm: weir.FixedWindow, Rate: 2, Per: 365 * 24 * time.Hour}}
	dir := t.TempDir()
	c := startKeeper(t, keeper{Name: "old", Dir: dir, Limits: limits, Keys: keys})
	c.awaitDone(t, "ready")
	require.NoError(t, c.Order(fillOrder))
	require.Len(t, c.awaitDone(t, fillOrder).Admitted, keys)
	c.awaitSaved(t, 1)
	require.NoError(t, c.Order(stallOrder))
	c.await(t, "a snapshot that stops halfway", func() bool { return c.stalled })
	require.NoError(t, c.Order(spendOrder))
	spent := c.awaitDone(t, spendOrder).Admitted
	require.Len(t, spent, keys)
	require.NoError(t, c.Kill())
	<-c.Ended()
	half, err := filepath.Glob(filepath.Join(dir, "*old.writing"))
	require.NoError(t, err)
	require.Len(t, half, 1)

	c = startKeeper(t, keeper{Name: "next", Dir: dir, Limits: limits, Keys: keys})
	require.Equal(t, keys, c.awaitDone(t, "ready").Loaded)
	require.NoError(t, c.Order(spendOrder))
	require.Equal(t, spent, c.awaitDone(t, spendOrder).Admitted, "one unit of each key, which the snapshot before lacks")
	require.NoFileExists(t, half[0])
}

func TestASecondProcessOnADirectoryEndsWithTheReason(t *testing.T) {
	t.Parallel()
	k := keeper{Name: "first", Dir: t.TempDir()}
	first := startKeeper(t, k)
	first.awaitDone(t, "ready")
	k.Name = "second"
	second := startKeeper(t, k)
	select {
	case <-second.Ended():
	case <-time.After(realtime.GiveUp):
		t.Fatal("the second process runs on")
	}
	require.False(t, second.Well())
	require.Contains(t, second.done["failed"].Failed, "another process uses the directory "+k.Dir)
	first.awaitSaved(t, 1)
}
