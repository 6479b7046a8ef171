package countsync

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
)

// byParts contains roles by ranges: the highest bits of a hash determine the member that answers,
// and each count has a single target, the next node.
type byParts struct {
	self    Member
	answers []Member // for each part of the hashes
}

func (r *byParts) partOf(id bucket.ID) int { return int(id.Hi >> 32 * uint64(len(r.answers)) >> 32) }
func (r *byParts) Holds(id bucket.ID) bool {
	return r.answers[r.partOf(id)] == r.self
}
func (r *byParts) Holder(id bucket.ID) Member  { return r.answers[r.partOf(id)] }
func (r *byParts) Answers(id bucket.ID) Member { return r.answers[r.partOf(id)] }
func (r *byParts) Targets(dst []Member, id bucket.ID) []Member {
	at := slices.Index(r.answers, r.answers[r.partOf(id)])
	for i := range r.answers {
		if m := r.answers[(at+1+i)%len(r.answers)]; m != r.self {
			return append(dst, m)
		}
	}
	return dst
}

// reviewTrio contains three nodes, each of which answers for a third of the ids. The first node
// has spent units of all ids, and the first half of the ids were reset before that. The answering
// member of each id has its count.
type reviewTrio struct {
	t       *testing.T
	now     int64
	ids     []bucket.ID
	stores  [3]*bucket.Store
	streams [3]*Stream
	roles   [3]Roles
	frames  int
}

func newReviewed(t *testing.T, ids int) *reviewTrio {
	x := &reviewTrio{t: t, now: int64(time.Hour)}
	random := rand.New(rand.NewPCG(1, 2))
	for range ids {
		x.ids = append(x.ids, bucket.ID{Hi: random.Uint64(), Lo: random.Uint64()})
	}
	for i := range x.streams {
		x.streams[i], x.stores[i] = streamOf(Member(i+1), 1<<14, 1, 2, 3)
	}
	x.view(1, 2, 3)
	limit := bucket.Limit{Algorithm: bucket.FixedWindow, Rate: 100, Per: time.Hour}
	for _, s := range x.streams { // the first node sends the resets to the other nodes
		for _, id := range x.ids[:ids/2] {
			s.ResetTo(id, 7, 0, x.now)
		}
		x.settle()
	}
	for _, id := range x.ids {
		x.stores[0].Take(id, &limit, x.now, 1)
	}
	x.settle()
	return x
}

// settle collects, reviews and exchanges until the nodes have no data to send.
func (x *reviewTrio) settle() {
	for sent, rounds := true, 0; sent; rounds++ {
		require.Less(x.t, rounds, 1_000_000, "the nodes send without end")
		x.now += int64(time.Millisecond)
		sent = false
		for i, s := range x.streams {
			s.Collect(x.now, false, x.roles[i])
			_, over := s.ReviewPart(x.now, x.roles[i])
			sent = sent || !over
			for j := range x.streams {
				sent = i != j && x.send(i, j) || sent
			}
		}
	}
}

// send carries a frame, and reports whether there was a frame.
func (x *reviewTrio) send(from, to int) bool {
	n, _ := carry(x.t, x.now, x.streams[from], x.roles[from], x.streams[to], x.roles[to])
	if n > 0 {
		x.frames++
	}
	return n > 0
}

// view sets the answering member for each third of the ids, and does a whole review on each node.
func (x *reviewTrio) view(answers ...Member) {
	for i, s := range x.streams {
		x.roles[i] = &byParts{Member(i + 1), answers}
		for _, over := s.Review(x.now, x.roles[i]); !over; _, over = s.ReviewPart(x.now, x.roles[i]) {
		}
	}
}

// countIn returns how many of the given ids are in a third. If no ids are given, it counts all of
// them.
func (x *reviewTrio) countIn(part int, ids ...bucket.ID) (n int) {
	if len(ids) == 0 {
		ids = x.ids
	}
	for _, id := range ids {
		if x.roles[0].(*byParts).partOf(id) == part {
			n++
		}
	}
	return n
}

// waiting returns the number of ids that wait on a node for another node.
func (x *reviewTrio) waiting(from, to Member) int {
	return x.streams[from-1].Lag(to, x.now).Counts
}

func (x *reviewTrio) nothingWaits() {
	x.t.Helper()
	for from := range Member(3) {
		for to := range Member(3) {
			require.Zero(x.t, x.waiting(from+1, to+1), "from %d to %d", from+1, to+1)
		}
	}
}

func TestReviewWithUnchangedAnswerersSendsNothing(t *testing.T) {
	x := newReviewed(t, 3000)
	x.view(1, 2, 3)
	x.nothingWaits()
	frames := x.frames
	x.settle()
	require.Equal(t, frames, x.frames)
}

func TestReviewSendsOnlyIDsWithANewAnswerer(t *testing.T) {
	x := newReviewed(t, 3000)
	x.view(1, 2, 1)
	require.Zero(t, x.waiting(3, 1), "what the third knows it has from the first")
	require.Equal(t, x.countIn(2), x.waiting(1, 2), "a state of each for its new target")
	require.Equal(t, x.countIn(2, x.ids[:1500]...), x.waiting(2, 1), "the second knows of the resets, and not that the first does")
	require.Zero(t, x.waiting(2, 3))
	require.Zero(t, x.waiting(3, 2))

	x = newReviewed(t, 3000)
	x.view(1, 2, 2)
	require.Equal(t, x.countIn(2), x.waiting(1, 2))
	require.Equal(t, x.countIn(2, x.ids[:1500]...), x.waiting(3, 2), "only resets: scans send its copies of the first node's counts")
	require.Zero(t, x.waiting(1, 3))
	require.Equal(t, x.countIn(2, x.ids[:1500]...), x.waiting(2, 1), "a state of each that it knows something of, for its new target")
	x.settle()
	for _, id := range x.ids {
		if x.roles[0].(*byParts).partOf(id) == 2 {
			used, _, _ := x.stores[1].Used(id, x.now)
			require.EqualValues(t, 1, used)
		}
	}
}

func TestSecondReviewQueuesNoIDAgain(t *testing.T) {
	x := newReviewed(t, 3000)
	x.view(1, 2, 2)
	x.view(1, 2, 2)
	require.Equal(t, x.countIn(2), x.waiting(1, 2))
	x.view(1, 2, 3)
	require.Zero(t, x.waiting(1, 3), "it has acknowledged that before")
	x.view(1, 2, 2)
	require.Equal(t, x.countIn(2), x.waiting(1, 2))

	// One frame is in flight, and has no answer yet.
	require.NotNil(t, x.streams[0].Next(2, x.now, x.roles[0], nil, 16<<10))
	x.view(1, 2, 2)
	require.Equal(t, x.countIn(2), x.waiting(1, 2))
	x.streams[0].Lost(2)
	require.Equal(t, x.countIn(2), x.waiting(1, 2))
	x.settle()
	x.view(1, 2, 2)
	x.nothingWaits()
}

func TestReturningMemberReceivesAllItsIDs(t *testing.T) {
	x := newReviewed(t, 3000)
	x.streams[0].Meet([]Member{1, 2})
	x.streams[0].Meet([]Member{1, 2, 3})
	x.view(1, 2, 3)
	require.Equal(t, x.countIn(2), x.waiting(1, 3))
}

// A part of a review visits a bounded number of ids, no matter how many there are.
func TestReviewPartsAreBounded(t *testing.T) {
	x := newReviewed(t, 20*reviewPart)
	require.GreaterOrEqual(t, reviewInParts(t, x.streams[0], x.now), int64(20*reviewPart))
}

func TestLeaverIsNotIdleDuringReview(t *testing.T) {
	x := newReviewed(t, 4*reviewPart)
	s := x.streams[0]
	require.True(t, s.Idle(3))
	_, over := s.Review(x.now, x.roles[0])
	require.False(t, over)
	require.False(t, s.Idle(3))
}

// Between two parts of a review, the first tally of an id may be forgotten, while another tally
// of the id is at a place that was already visited.
func TestReviewVisitsAllTalliesDespiteRemovals(t *testing.T) {
	s := New(1, bucket.NewStore(100, bucket.Salt{}))
	id, gone := bucket.ID{Hi: 1}, bucket.ID{Hi: 2}
	s.ledger.add(gone, tally{origin: 2})
	s.ledger.add(bucket.ID{Hi: 3}, tally{origin: 2})
	s.ledger.add(id, tally{origin: 2}) // the first tally of this id
	s.ledger.drop(gone)
	s.ledger.add(id, tally{origin: 3}) // at the free place
	require.EqualValues(t, 2, s.ledger.firstEntry(id))

	var at review
	seen := make(map[bucket.ID]int)
	for step := 0; ; step++ {
		kind, id, ok := s.nextBeside(&at)
		if !ok {
			break
		}
		if kind == ofVector {
			seen[id]++
		}
		if step == 0 {
			s.ledger.remove(2)
		}
	}
	require.Equal(t, map[bucket.ID]int{id: 1, {Hi: 3}: 1}, seen)
}
