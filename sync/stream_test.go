package countsync

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
)

// link contains two nodes, the first of which holds all ids, and the connection between them.
type link struct {
	t       testing.TB
	stores  [2]*bucket.Store
	streams [2]*Stream
	now     int64
	bytes   int
}

// fixed implements Roles with values that a test sets.
type fixed struct {
	holds   bool
	answers Member
	targets []Member
}

func (f *fixed) Holds(bucket.ID) bool                       { return f.holds }
func (f *fixed) Holder(bucket.ID) Member                    { return f.answers }
func (f *fixed) Answers(bucket.ID) Member                   { return f.answers }
func (f *fixed) Targets(dst []Member, _ bucket.ID) []Member { return append(dst, f.targets...) }

// streamOf returns a stream and its store, which is tracked.
func streamOf(self Member, counts int, met ...Member) (*Stream, *bucket.Store) {
	store := bucket.NewStore(counts, bucket.Salt{})
	store.Track(self, 1, nil)
	s := New(self, store)
	s.Meet(met)
	return s, store
}

// carry sends the next frame of a stream to another stream, and the answer back. carry returns
// the size of the frame, or 0 if there is no frame.
func carry(t require.TestingT, now int64, from *Stream, sends Roles, to *Stream, receives Roles) (bytes int, a Arrival) {
	frame := from.Next(to.self, now, sends, nil, 16<<10)
	if frame == nil {
		return 0, a
	}
	answer, a, err := to.Serve(now, frame, receives, nil)
	require.NoError(t, err)
	_, err = from.Answered(to.self, now, answer, sends)
	require.NoError(t, err)
	return len(frame), a
}

func newLink(t testing.TB) *link {
	l := &link{t: t, now: int64(time.Hour)}
	for i := range l.stores {
		l.streams[i], l.stores[i] = streamOf(Member(i+1), 1<<20, 1, 2)
	}
	return l
}

func (l *link) roles(i int) *fixed {
	return &fixed{holds: i == 0, answers: 1, targets: []Member{Member(2 - i)}}
}

// send carries a frame, and reports whether there was a frame.
func (l *link) send(from int) bool {
	n, _ := carry(l.t, l.now, l.streams[from], l.roles(from), l.streams[1-from], l.roles(1-from))
	l.bytes += n
	return n > 0
}

// settle exchanges frames until there is no data left to send. settle returns the size of these
// frames.
func (l *link) settle() (bytes int) {
	before := l.bytes
	for sent := true; sent; {
		sent = false
		for i := range l.streams {
			l.streams[i].Collect(l.now, false, l.roles(i))
			for l.send(i) {
				sent = true
			}
		}
	}
	return l.bytes - before
}

func (l *link) used(i int, id bucket.ID) int64 {
	used, _, _ := l.stores[i].Used(id, l.now)
	return used
}

func someID(i int) bucket.ID {
	return bucket.ID{Hi: uint64(i+1) * 0x9e3779b97f4a7c15, Lo: uint64(i+1) * 0xc2b2ae3d27d4eb4f}
}

func TestLogIsSentInNewPieces(t *testing.T) {
	l := newLink(t)
	limit := bucket.Limit{Algorithm: bucket.SlidingLog, Rate: 100_000, Per: time.Hour}
	for range 50_000 {
		l.now += int64(time.Millisecond)
		l.stores[0].Take(someID(0), &limit, l.now, 1)
	}
	whole := l.settle()
	require.Equal(t, int64(50_000), l.used(1, someID(0)), "in pieces of 16 KiB")
	require.Greater(t, whole, 100_000)
	for range 100 {
		for range 10 {
			l.now += int64(time.Millisecond)
			l.stores[0].Take(someID(0), &limit, l.now, 1)
		}
		require.Less(t, l.settle(), 200)
	}
	require.Equal(t, int64(51_000), l.used(1, someID(0)))

	// A refund changes the log before its end, so the whole log is sent again. After that, only
	// new entries are sent.
	l.stores[0].Refund(someID(0), &limit, l.now, 1000, 0, false)
	require.Greater(t, l.settle(), 100_000)
	l.stores[0].Take(someID(0), &limit, l.now, 7)
	require.Less(t, l.settle(), 200)
	require.Equal(t, int64(50_007), l.used(1, someID(0)))

	// If both nodes spend units before the next exchange, both counts contain all these
	// units after it.
	l.stores[1].Take(someID(0), &limit, l.now, 3)
	l.stores[0].Take(someID(0), &limit, l.now, 2)
	l.settle()
	require.Equal(t, int64(50_012), l.used(0, someID(0)))
	require.Equal(t, int64(50_012), l.used(1, someID(0)))
}

// If a log is sent again as a whole, the count is unchanged until the last piece has arrived.
func TestIncompleteLogReplacesNoCount(t *testing.T) {
	l := newLink(t)
	limit := bucket.Limit{Algorithm: bucket.SlidingLog, Rate: 100_000, Per: time.Hour}
	for range 20_000 {
		l.now += int64(time.Millisecond)
		l.stores[0].Take(someID(0), &limit, l.now, 1)
	}
	l.settle()
	l.stores[0].Refund(someID(0), &limit, l.now, 1, 0, false)
	l.streams[0].Collect(l.now, false, l.roles(0))
	for pieces := 0; l.send(0); pieces++ {
		if l.used(1, someID(0)) == 19_999 {
			require.Greater(t, pieces, 2)
			return
		}
		require.Equal(t, int64(20_000), l.used(1, someID(0)))
	}
	t.Fatal("the refund never came")
}

func TestSlowMemberLosesNoCounts(t *testing.T) {
	l := newLink(t)
	limit := limitOf(bucket.FixedWindow)
	o := l.streams[0].outbound(2)
	o.queue.foldAt, o.queue.most = 100, 1000
	spend := func(ids, times int) {
		for range times {
			for i := range ids {
				l.stores[0].Take(someID(i), &limit, l.now, 1)
			}
			l.streams[0].Collect(l.now, false, l.roles(0))
			require.LessOrEqual(t, o.queue.len(), 1000)
		}
	}
	spend(90, 1)
	require.NotNil(t, l.streams[0].Next(2, l.now, l.roles(0), nil, 1024)) // without an answer
	spend(500, 10)
	require.Equal(t, 500, o.queue.len(), "each id once")
	require.False(t, l.streams[0].Lag(2, l.now).Scanning)
	spend(1500, 2)
	require.True(t, l.streams[0].Lag(2, l.now).Scanning, "a scan sends the excess")
	l.streams[0].Lost(2)
	l.settle()
	require.Equal(t, Backlog{}, l.streams[0].Lag(2, l.now))
	require.True(t, l.streams[0].Idle(2))
	for i := range 1500 {
		require.Equal(t, l.used(0, someID(i)), l.used(1, someID(i)), i)
	}
	require.Equal(t, int64(13), l.used(1, someID(0)))
}

func TestAuthorityArrivesAfterAllWaitingItems(t *testing.T) {
	l := newLink(t)
	limit := limitOf(bucket.TokenBucket)
	for i := range 5000 {
		l.stores[0].Take(someID(i), &limit, l.now, 1)
	}
	s := l.streams[0]
	s.Owe(2, All())
	s.Collect(l.now, false, l.roles(0))
	s.Transfer(2, 7, NewRanges(Range{5, 9}, Range{100, 200}), l.now)
	var complete bool
	for {
		frame := s.Next(2, l.now, l.roles(0), nil, 16<<10)
		require.NotNil(t, frame)
		answer, a, err := l.streams[1].Serve(l.now, frame, l.roles(1), nil)
		require.NoError(t, err)
		if complete = complete || a.Complete; a.Authority != nil {
			require.Equal(t, Ranges{{5, 9}, {100, 200}}, a.Authority)
			require.True(t, complete)
			again, a, err := l.streams[1].Serve(l.now, frame, l.roles(1), nil)
			require.NoError(t, err)
			require.Equal(t, answer, again)
			require.Nil(t, a.Authority, "once")
			break
		}
		_, err = s.Answered(2, l.now, answer, l.roles(0))
		require.NoError(t, err)
	}
	for i := range 5000 {
		require.Equal(t, int64(1), l.used(1, someID(i)))
	}
}

// If there are more ranges than a frame has room for, they are transferred in several frames.
// Each range must be transferred once, even if each frame arrives twice.
func TestManyRangesAreTransferredCompletely(t *testing.T) {
	x := newTrio()
	var want []Range
	for i := range uint64(2*x.streams[0].caps.Ranges + 10) {
		want = append(want, Range{10 * i, 10*i + 1})
	}
	x.streams[0].Transfer(2, 7, NewRanges(want...), x.now)
	x.streams[0].Transfer(2, 8, NewRanges(Range{9, 9}), x.now)
	var got []Range
	for answered := false; ; answered = !answered {
		frame := x.streams[0].Next(2, x.now, x.roles[0], nil, 16<<10)
		if frame == nil {
			break
		}
		if !answered { // the frame does not arrive
			x.streams[0].Lost(2)
			require.True(t, x.streams[0].Transferring())
			frame = x.streams[0].Next(2, x.now, x.roles[0], nil, 16<<10)
		}
		answer, a, err := x.streams[1].Serve(x.now, frame, x.roles[1], nil)
		require.NoError(t, err)
		got = append(got, a.Authority...)
		if !answered {
			x.streams[0].Lost(2)
			continue
		}
		_, err = x.streams[0].Answered(2, x.now, answer, x.roles[0])
		require.NoError(t, err)
	}
	require.True(t, slices.Equal(append(want, Range{9, 9}), got), "%d ranges of %d", len(got), len(want)+1)
	require.False(t, x.streams[0].Transferring())
}

// A transfer does not wait for counts that are owed later. It does wait for a scan that sends an item
// for which the queue had no room.
func TestAuthorityDoesNotWaitForALaterScan(t *testing.T) {
	for _, drops := range []bool{false, true} {
		l := newLink(t)
		limit := limitOf(bucket.TokenBucket)
		for i := range 5000 {
			l.stores[0].Take(someID(i), &limit, l.now, 1)
		}
		s := l.streams[0]
		s.Owe(2, All())
		l.settle()
		if drops {
			s.outbound(2).queue.most = 10
			for i := range 10 {
				l.stores[0].Take(someID(i), &limit, l.now, 1)
			}
			s.Collect(l.now, false, l.roles(0))
		}
		s.Transfer(2, 7, All(), l.now)
		if drops {
			l.stores[0].Take(someID(10), &limit, l.now, 1)
			s.Collect(l.now, false, l.roles(0))
		} else {
			s.Owe(2, All())
		}
		frame := s.Next(2, l.now, l.roles(0), nil, 16<<10)
		_, a, err := l.streams[1].Serve(l.now, frame, l.roles(1), nil)
		require.NoError(t, err)
		require.Equal(t, !drops, a.Authority != nil)
		require.False(t, a.Complete)
	}
}

// Days are identified by their start. A member that has a count of a later day keeps this count,
// and units of an earlier day are not counted in it.
func TestWindowStartsAreSentWithCounts(t *testing.T) {
	l := newLink(t)
	const day = 24 * int64(time.Hour)
	today := bucket.Limit{Algorithm: bucket.FixedWindow, Rate: 10, Per: 24 * time.Hour, Start: 10 * day}
	tomorrow := today
	tomorrow.Start += day
	l.now = tomorrow.Start - 5
	l.stores[0].Take(someID(0), &today, l.now, 10)
	l.settle()
	require.EqualValues(t, 10, l.used(1, someID(0)))
	l.stores[0].Take(someID(0), &tomorrow, l.now, 4)
	l.settle()
	require.EqualValues(t, 4, l.used(1, someID(0)))
	require.EqualValues(t, 6, l.stores[1].Peek(someID(0), &today, l.now, 1).Remaining)
	l.now = tomorrow.Start + day - 1
	require.EqualValues(t, 4, l.used(1, someID(0)))
	l.now++
	require.Zero(t, l.used(1, someID(0)), "it ends with the day, though it began early")
}

// copyOf is the copy of an id on a node.
type copyOf struct {
	used   int64
	vector vector
}

func (x *trio) copy(i int, id bucket.ID) (c copyOf) {
	c.used, _, _ = x.stores[i].Used(id, x.now)
	c.vector = x.streams[i].vector(nil, id, x.now)
	return c
}

// If units have recovered, they must not count again, and no unit must ever count twice.
func TestRecoveredUnitsStayRecovered(t *testing.T) {
	checks(t, 200, 2000)
	rapid.Check(t, func(t *rapid.T) {
		limit := limitOf(bucket.Algorithm(rapid.IntRange(0, 4).Draw(t, "algorithm")))
		limit.Per = 20 * time.Second
		if limit.Burst > 0 {
			limit.Rate = 100
		}
		w := newWorld(t, limit, 1, rapid.IntRange(1, 2).Draw(t, "copies"))
		for range rapid.IntRange(2, 4).Draw(t, "nodes") {
			w.start(0)
		}
		clear(w.joining)
		id := w.ids[0]
		w.nodes[0].holds[id] = true
		for _, n := range w.nodes {
			n.refresh()
		}
		ideal := bucket.NewStore(16, bucket.Salt{})
		total := int64(0)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			w.now += rapid.Int64Range(0, 1e9).Draw(t, "later")
			n := w.nodes[rapid.IntRange(0, len(w.nodes)-1).Draw(t, "node")]
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			case 0, 1, 2:
				if units := rapid.Int64Range(1, 5).Draw(t, "units"); n.store.Take(id, &limit, w.now, units).Allowed {
					ideal.Debit(id, &limit, w.now, units)
					total += units
				}
			case 3:
				w.sides[n.name] = rapid.IntRange(0, 1).Draw(t, "side")
				n.refresh()
			case 4:
				n.refresh()
			case 5:
				n.handOver()
			case 6:
				if len(w.net) > 0 {
					w.lose(rapid.IntRange(0, len(w.net)-1).Draw(t, "message"), rapid.Bool().Draw(t, "gone"))
				}
			case 7:
				if len(w.net) > 0 {
					w.deliver(rapid.IntRange(0, len(w.net)-1).Draw(t, "message"), rapid.Bool().Draw(t, "again"))
				}
			default:
				w.exchange()
			}
			for _, n := range w.nodes {
				n.stream.Sweep(w.now)
				if used := w.used(n, id); used > total {
					t.Fatalf("%d has %d of %d\n%s", n.name, used, total, w.history())
				}
			}
		}
		w.quiet()
		least := int64(0)
		if limit.Algorithm == bucket.SlidingLog {
			// The counts of other algorithms depend on the start of their windows, or drain on
			// both sides of a partition.
			least, _, _ = ideal.Used(id, w.now)
		}
		for _, n := range w.nodes {
			if used := w.used(n, id); n.holds[id] && (used > total || used < least) {
				t.Fatalf("%v: %d has %d, admitted %d, of which %d still count\n%s", limit.Algorithm, n.name, used, total, least, w.history())
			}
		}
		w.now += 3 * int64(limit.Per)
		w.quiet()
		for _, n := range w.nodes {
			if used := w.used(n, id); used > 0 && limit.Burst == 0 {
				t.Fatalf("%d has %d at the end\n%s", n.name, used, w.history())
			}
		}
	})
}

// Takes, refunds, collections and exchanges are concurrent.
func TestConcurrentSpendingCountsOnce(t *testing.T) {
	l := newLink(t)
	const ids = 50
	limits := make([]bucket.Limit, 5)
	for i := range limits {
		limits[i] = limitOf(bucket.Algorithm(i))
		limits[i].Rate, limits[i].Burst = 100_000, limits[i].Burst*100
		limits[i].Per = 300 * 24 * time.Hour
	}
	var admitted [ids]int64
	var mu sync.Mutex
	var spenders, exchange sync.WaitGroup
	stop := make(chan struct{})
	for i := range 2 {
		for g := range 2 {
			spenders.Go(func() {
				var own [ids]int64
				for k := range 50_000 {
					x := (k*7 + g) % ids
					limit := &limits[x%len(limits)]
					if l.stores[i].Take(someID(x), limit, l.now, 2).Allowed {
						own[x] += 2
					}
					// part of a unit in a bucket may have drained
					if k%3 == 0 && limit.Burst == 0 && l.stores[i].Refund(someID(x), limit, l.now, 1, 0, false) {
						own[x]--
					}
				}
				mu.Lock()
				defer mu.Unlock()
				for x := range own {
					admitted[x] += own[x]
				}
			})
		}
		exchange.Go(func() {
			to := Member(2 - i)
			var frame, answer []byte
			for round := 0; ; round++ {
				select {
				case <-stop:
					return
				default:
				}
				l.streams[i].Collect(l.now, round%2 == 0, l.roles(i))
				f := l.streams[i].Next(to, l.now, l.roles(i), frame, 4096)
				if f == nil {
					continue
				}
				if round%7 == 0 {
					l.streams[i].Lost(to)
					continue
				}
				answer, _, _ = l.streams[1-i].Serve(l.now, f, l.roles(1-i), answer[:0])
				l.streams[i].Answered(to, l.now, answer, l.roles(i))
				l.streams[i].Sweep(l.now)
				l.streams[i].Lag(to, l.now)
			}
		})
	}
	spenders.Wait()
	close(stop)
	exchange.Wait()
	l.streams[0].Lost(2)
	l.streams[1].Lost(1)
	l.settle()
	for x := range ids {
		for i := range l.stores {
			require.Equal(t, admitted[x], l.used(i, someID(x)), fmt.Sprint(limits[x%len(limits)].Algorithm, " at ", i))
		}
	}
}

// trio contains three nodes with roles that a test sets. Initially the first node is the owner,
// and the other nodes have copies.
type trio struct {
	roles   [3]*fixed
	stores  [3]*bucket.Store
	streams [3]*Stream
	now     int64
}

func newTrio() *trio {
	x := &trio{now: int64(time.Hour)}
	for i := range x.streams {
		x.roles[i] = &fixed{answers: 1}
		x.streams[i], x.stores[i] = streamOf(Member(i+1), 1000, 1, 2, 3)
	}
	x.roles[0].holds = true
	return x
}

// exchange sends all data that a node has for another node, and reports whether there was any.
func (x *trio) exchange(t require.TestingT, from, to int) (sent bool) {
	x.streams[from].Collect(x.now, false, x.roles[from])
	for range 50 {
		if n, _ := carry(t, x.now, x.streams[from], x.roles[from], x.streams[to], x.roles[to]); n == 0 {
			return sent
		}
		sent = true
	}
	require.Fail(t, "the nodes send without end")
	return sent
}

// A node finds that it began separately while it was transferring authority. It must cancel the
// transfer. The count is no longer for the receiver of the transfer alone, so the node must send it
// to the member that answers.
func TestYieldCancelsTransfersAndOwesCounts(t *testing.T) {
	limit := limitOf(bucket.FixedWindow)
	for _, flies := range []bool{false, true} {
		x, id := newTrio(), someID(0)
		x.stores[0].Take(id, &limit, x.now, 4)
		x.streams[0].Collect(x.now, false, x.roles[0])
		x.exchange(t, 0, 1)
		*x.roles[0] = fixed{answers: 2}
		x.streams[0].Transfer(2, 1, Ranges{{id.Hi, id.Hi}}, x.now)
		if flies {
			x.streams[0].Next(2, x.now, x.roles[0], nil, 1<<10)
		}
		x.streams[0].Yield(nil, x.now)
		x.streams[0].Lost(2)
		require.False(t, x.streams[0].Transferring())
		*x.roles[0], *x.roles[2] = fixed{answers: 3}, fixed{holds: true, answers: 3}
		require.False(t, x.streams[0].Idle(3))
		for sent := 1; sent > 0; {
			var a Arrival
			sent, a = carry(t, x.now, x.streams[0], x.roles[0], x.streams[1], x.roles[1])
			require.Nil(t, a.Authority)
		}
		x.exchange(t, 0, 2)
		require.EqualValues(t, 4, x.copy(0, id).used)
		require.EqualValues(t, 4, x.copy(2, id).used)
	}
}

// If the receiver of a transfer has left, the counts in the transferred ranges are owed to all other
// members.
func TestCountsOfTransferToLostMemberReachOthers(t *testing.T) {
	limit := limitOf(bucket.FixedWindow)
	const gone = 4
	for _, flies := range []bool{false, true} {
		x, id, other := newTrio(), someID(0), someID(1)
		s := x.streams[0]
		s.Meet([]Member{2, gone})
		x.stores[0].Take(id, &limit, x.now, 4)
		x.stores[0].Take(other, &limit, x.now, 3)
		s.Collect(x.now, false, x.roles[0])
		s.Transfer(gone, 1, Ranges{{id.Hi, id.Hi}}, x.now)
		if flies {
			require.NotNil(t, s.Next(gone, x.now, x.roles[0], nil, 1<<10))
		}
		x.roles[0].targets = []Member{2}
		s.Meet([]Member{2})
		require.False(t, s.Transferring())
		x.exchange(t, 0, 1)
		require.EqualValues(t, 4, x.copy(1, id).used)
		require.Zero(t, x.copy(1, other).used, "authority over it was not transferred")
	}
}

// Units that are in flight when their sender yields count once, whether the scan that sends them is
// finished or in progress, and even if more counts are owed in the meantime.
func TestUnitsInFlightFromAYieldingMemberCountOnce(t *testing.T) {
	limit := limitOf(bucket.FixedWindow)
	for _, ids := range []int{1, 2 * Caps{}.withDefaults().ScanBelow} {
		for _, more := range []Ranges{nil, {{0, 0}}} {
			x := newTrio()
			x.roles[0].targets = []Member{2}
			for i := range ids {
				x.stores[0].Take(someID(i), &limit, x.now, 5)
			}
			x.streams[0].Owe(2, All())
			frame := x.streams[0].Next(2, x.now, x.roles[0], nil, 16<<10)
			x.streams[0].Owe(2, more)
			x.streams[0].Yield(All(), x.now)
			answer, _, err := x.streams[1].Serve(x.now, frame, x.roles[1], nil)
			require.NoError(t, err)
			for i := range x.roles {
				*x.roles[i] = fixed{answers: 3}
			}
			_, err = x.streams[0].Answered(2, x.now, answer, x.roles[0])
			require.NoError(t, err)
			x.exchange(t, 0, 1)
			x.streams[0].Review(x.now, x.roles[0])
			x.exchange(t, 0, 2)
			x.streams[1].Owe(3, All())
			x.exchange(t, 1, 2)
			for i := range ids {
				require.EqualValues(t, 5, x.copy(2, someID(i)).used, "of %d, more is %v", ids, more)
			}
		}
	}
}

// reviewInParts does a whole review of a stream, and requires that each part visits at most
// reviewPart ids. reviewInParts returns the number of ids that the review visited.
func reviewInParts(t *testing.T, s *Stream, now int64) int64 {
	t.Helper()
	roles := &counting{fixed: fixed{answers: 2}}
	_, over := s.Review(now, roles)
	for parts := int64(1); !over; parts++ {
		require.LessOrEqual(t, roles.asked, parts*reviewPart)
		_, over = s.ReviewPart(now, roles)
	}
	return roles.asked
}

// counting implements Roles. Member 2 answers for all ids, and the calls of Answers are counted.
type counting struct {
	fixed
	asked int64
}

func (c *counting) Answers(bucket.ID) Member {
	c.asked++
	return 2
}

// The copy of a member contains units that the member has spent once, and is renewed again and
// again. Another member, whose own copy was empty, has forgotten the tally before. The other member
// must not count these units again.
func TestReturningRecoveredTallyCountsNothing(t *testing.T) {
	limit := bucket.Limit{Algorithm: bucket.FixedWindow, Rate: 10, Per: 5 * time.Second}
	x, id := newTrio(), someID(0)
	x.roles[0].targets = []Member{2}
	x.stores[0].Take(id, &limit, x.now, 1)
	x.exchange(t, 0, 1)
	x.stores[1].Take(id, &limit, x.now, 3) // node 2 stands in
	x.exchange(t, 1, 0)
	require.EqualValues(t, 4, x.copy(0, id).used)
	forgot := false
	for range 6 {
		x.now += int64(limit.Per)
		x.streams[0].Sweep(x.now)
		x.stores[0].Take(id, &limit, x.now, 2)
		for x.exchange(t, 0, 1) || x.exchange(t, 1, 0) {
		}
		forgot = forgot || len(x.copy(0, id).vector) < len(x.copy(1, id).vector)
		require.EqualValues(t, 2, x.copy(0, id).used, "%+v", x.copy(0, id))
		require.EqualValues(t, 2, x.copy(1, id).used)
	}
	require.True(t, forgot, "the tally was never forgotten before the other had")
}

// A leaving member sends copies only until it calls Forgo. It always sends the units that it has
// spent without authority.
func TestLeaverThatForgoesSendsNoCopies(t *testing.T) {
	const ids = 1000
	limit, roles := limitOf(bucket.SlidingWindow), &fixed{answers: 3, targets: []Member{2, 3}}
	for _, forgoes := range []bool{false, true} {
		store, other := bucket.NewStore(1<<12, bucket.Salt{}), bucket.NewStore(1<<12, bucket.Salt{})
		s, o := New(1, store), New(2, other)
		s.Meet([]Member{1, 2, 3})
		now := int64(time.Hour)
		for i := range ids {
			store.SpendElsewhere(someID(i), &limit, now, 1) // copies of the counts of node 3
		}
		store.Track(1, now, nil)
		s.Leaving()
		s.Owe(2, All())
		for n, a := carry(t, now, s, roles, o, roles); n > 0; n, a = carry(t, now, s, roles, o, roles) {
			require.True(t, a.Leaving)
			if forgoes {
				s.Forgo()
			}
		}
		require.True(t, s.Idle(2))
		if !forgoes {
			require.Equal(t, ids, other.Len())
			continue
		}
		require.Less(t, other.Len(), ids)
		store.Take(someID(0), &limit, now, 1)
		s.Collect(now, false, roles)
		require.False(t, s.Idle(3), "what it has spent itself")
	}
}

// Even a member that always has data to send can find out what another member has acknowledged.
func TestAcknowledgedIgnoresLaterItems(t *testing.T) {
	limit, roles := limitOf(bucket.SlidingWindow), &fixed{answers: 3, targets: []Member{2, 3}}
	store, other := bucket.NewStore(1<<12, bucket.Salt{}), bucket.NewStore(1<<12, bucket.Salt{})
	s, o := New(1, store), New(3, other)
	store.Track(1, int64(time.Hour), nil)
	s.Meet([]Member{3})
	now := int64(time.Hour)
	spend := func() (at int64) {
		store.Take(someID(0), &limit, now, 1)
		s.Collect(now, false, roles)
		return s.Time()
	}
	deliver := func(frame []byte) {
		answer, _, err := o.Serve(now, frame, roles, nil)
		require.NoError(t, err)
		_, err = s.Answered(3, now, answer, roles)
		require.NoError(t, err)
	}
	for range 10 {
		first := spend()
		require.False(t, s.Acknowledged(3, first), "queued")
		frame := s.Next(3, now, roles, nil, 4<<10)
		second := spend()
		require.False(t, s.Acknowledged(3, first), "in flight")
		deliver(frame)
		require.True(t, s.Acknowledged(3, first))
		require.False(t, s.Acknowledged(3, second))
		require.False(t, s.Idle(3))
		deliver(s.Next(3, now, roles, nil, 4<<10))
		require.True(t, s.Acknowledged(3, second))
	}
	s.Owe(3, All())
	require.False(t, s.Acknowledged(3, s.Time()), "owed")
	deliver(s.Next(3, now, roles, nil, 4<<10))
	s.Transfer(3, 1, All(), now)
	require.False(t, s.Acknowledged(3, s.Time()), "authority")
}
