package countsync

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/bucket"
)

// held measures for how long each call of a stream's keeps its lock: for as long as the
// call takes, if nobody else wants it. The calls of two runs are the same, in the same
// order, and what else the machine does is not: each takes the shortest of its times.
type held struct {
	now   func() time.Duration
	calls []call
	i     int
}

type call struct {
	name, phase string
	took        time.Duration
}

// longest is how long a call may keep the lock.
const longest = 2 * time.Millisecond

func (h *held) call(phase, name string, do func()) {
	begun := h.now()
	do()
	took := h.now() - begun
	if h.i == len(h.calls) {
		h.calls = append(h.calls, call{name, phase, took})
	}
	c := &h.calls[h.i]
	c.took = min(c.took, took)
	h.i++
}

func (h *held) report(b *testing.B) {
	sum, most := make(map[string]time.Duration), make(map[string]time.Duration)
	var all, over time.Duration
	for _, c := range h.calls {
		all, sum[c.name], most[c.name] = max(all, c.took), sum[c.name]+c.took, max(most[c.name], c.took)
		if c.took > longest {
			over++
			b.Logf("%s while %s: %v", c.name, c.phase, c.took)
		}
	}
	for name := range sum {
		b.ReportMetric(most[name].Seconds()*1e3, name+"-max-ms")
		b.ReportMetric(sum[name].Seconds(), name+"-s")
	}
	b.ReportMetric(all.Seconds()*1e3, "max-lock-ms")
	b.ReportMetric(float64(over), "over-2ms")
	b.ReportMetric(0, "ns/op")
}

// byParts are roles by ranges: the member that answers for a hash is by its highest bits, and each
// count has one target, the next node.
type byParts struct {
	self    Member
	answers []Member // for each part of the hashes
}

func (r *byParts) part(id bucket.ID) int { return int(id.Hi >> 32 * uint64(len(r.answers)) >> 32) }
func (r *byParts) Holds(id bucket.ID) bool {
	return r.answers[r.part(id)] == r.self
}
func (r *byParts) Holder(id bucket.ID) Member  { return r.answers[r.part(id)] }
func (r *byParts) Answers(id bucket.ID) Member { return r.answers[r.part(id)] }
func (r *byParts) Targets(dst []Member, id bucket.ID) []Member {
	at := slices.Index(r.answers, r.answers[r.part(id)])
	for i := range r.answers {
		if m := r.answers[(at+1+i)%len(r.answers)]; m != r.self {
			return append(dst, m)
		}
	}
	return dst
}

// steps is streams that exchange frames, a step at a time.
type steps struct {
	now     int64
	phase   string
	stores  []*bucket.Store
	streams []*Stream
	roles   []Roles
	held    *held
	asleep  Member // takes no step and is reached by nobody
	frames  int
	bytes   int
	frame   []byte
	answer  []byte
}

func newSteps(h *held, nodes, counts int) *steps {
	h.i = 0
	x := &steps{now: int64(time.Hour), held: h}
	var members []Member
	for i := range nodes {
		members = append(members, Member(i+1))
	}
	for i := range nodes {
		store := bucket.NewStore(counts, bucket.Salt{})
		store.Track(Member(i+1), 1, nil)
		s := New(Member(i+1), store)
		s.Meet(members)
		x.stores, x.streams, x.roles = append(x.stores, store), append(x.streams, s), append(x.roles, nil)
	}
	return x
}

func (x *steps) call(name string, do func()) { x.held.call(x.phase, name, do) }

// round is one millisecond: each node collects, reviews and sweeps a part, and sends
// each other one a frame. It reports whether anything was sent.
func (x *steps) round(tb testing.TB) (sent bool) {
	x.now += int64(time.Millisecond)
	for i, s := range x.streams {
		if Member(i+1) == x.asleep {
			continue
		}
		over := false
		x.call("CollectPart", func() { // what it does under one lock
			_, s.cursor = s.collect(s.cursor, false, x.now, x.roles[i])
			over = s.cursor == 0
		})
		sent = sent || !over
		x.call("Review", func() { _, over = s.ReviewPart(x.now, x.roles[i]) })
		sent = sent || !over
		if x.now/1e6%50 == 0 {
			x.call("Sweep", func() { s.Sweep(x.now) })
		}
		for j := range x.streams {
			if i != j && Member(j+1) != x.asleep {
				sent = x.send(tb, i, j) || sent
			}
		}
	}
	return sent
}

func (x *steps) send(tb testing.TB, i, j int) bool {
	var err error
	most := 16 << 10
	if x.streams[i].Lag(Member(j+1), x.now).Counts > 2048 {
		most = 40 << 10
	}
	x.call("Next", func() {
		x.frame = x.streams[i].Next(Member(j+1), x.now, x.roles[i], x.frame[:0], most)
	})
	if len(x.frame) == 0 {
		return false
	}
	x.frames++
	x.bytes += len(x.frame)
	x.call("Serve", func() {
		x.answer, _, err = x.streams[j].Serve(x.now, x.frame, x.roles[j], x.answer[:0])
	})
	if err != nil {
		tb.Fatal(err)
	}
	x.call("Answered", func() { _, err = x.streams[i].Answered(Member(j+1), x.now, x.answer, x.roles[i]) })
	if err != nil {
		tb.Fatal(err)
	}
	return true
}

// settle goes on until nothing is sent.
func (x *steps) settle(tb testing.TB) (rounds int) {
	for ; x.round(tb); rounds++ {
		if rounds > 1_000_000 {
			tb.Fatal("it goes on and on")
		}
	}
	return rounds
}

// others are the calls that round does not make.
func (x *steps) others() {
	s, id := x.streams[0], bucket.ID{Hi: 1, Lo: 2}
	x.call("Yield", func() { s.Yield(All(), x.now) })
	x.call("RequestCounts", s.RequestCounts)
	x.call("Owe", func() { s.Owe(2, All()) })
	x.call("Give", func() { s.Give(2, 1, NewRanges(Range{1, 2}), x.now) })
	x.call("Giving", func() { s.Giving() })
	x.call("Next", func() { s.Next(2, x.now, x.roles[0], nil, 40<<10) })
	x.call("Lost", func() { s.Lost(2) })
	x.call("Meet", func() { s.Meet([]Member{1, 3, 4}) })
	x.call("Meet", func() { s.Meet([]Member{1, 2, 3, 4}) })
	x.call("Reset", func() { s.Reset(id, x.now) })
	x.call("ResetTo", func() { s.ResetTo(id, uint64(x.now)+1, 0, x.now) })
	x.call("Copy", func() { s.Copy([]bucket.ID{id}, x.now, x.roles[0]) })
	x.call("Lag", func() { s.Lag(2, x.now) })
	x.call("Idle", func() { s.Idle(2) })
	x.call("Tallies", func() { s.Tallies() })
	x.call("Beside", func() { s.Beside() })
}

func randomIDs(n int) []bucket.ID {
	random := rand.New(rand.NewPCG(1, 2))
	ids := make([]bucket.ID, n)
	for i := range ids {
		ids[i] = bucket.ID{Hi: random.Uint64(), Lo: random.Uint64()}
	}
	return ids
}

// BenchmarkLocks is what a million tombstones and 240,000 tallies cost three nodes: for
// how long any call keeps a stream's lock, and what all of them take, while these become
// known, one node's part moves to another, a member that knows nothing is owed
// everything, and all is swept.
func BenchmarkLocks(b *testing.B) {
	const tallies = 240_000
	for _, resets := range []int{50_000, 1_000_000} {
		b.Run(fmt.Sprintf("resets=%d", resets), func(b *testing.B) {
			limit := bucket.Limit{Algorithm: bucket.SlidingWindow, Rate: 1000, Per: time.Hour}
			ids := randomIDs(resets)
			h := &held{now: clock(b)}
			for b.Loop() {
				x := newSteps(h, 4, 4<<20)
				view := func(answers ...Member) {
					for i := range x.streams {
						x.roles[i] = &byParts{Member(i + 1), answers}
					}
					for i, s := range x.streams[:3] {
						x.call("Review", func() { s.Review(x.now, x.roles[i]) })
					}
				}
				view(1, 2, 3)
				x.phase = "resets become known"
				for i, id := range ids {
					for _, s := range x.streams[:3] {
						s.ResetTo(id, 7, 0, x.now)
					}
					if i%1000 == 0 {
						x.round(b)
					}
				}
				x.settle(b)
				x.phase = "one spends without authority"
				for i, id := range ids[:min(tallies, resets)] {
					x.stores[0].Take(id, &limit, x.now, 1)
					if i%100 == 0 {
						x.round(b)
					}
				}
				x.settle(b)
				x.phase = "a part moves"
				view(1, 2, 2)
				x.settle(b)
				x.phase = "one joins"
				for i := range 3 {
					x.streams[i].Owe(4, All())
				}
				view(1, 2, 4)
				x.settle(b)
				x.phase = "one yields all and requests all, and another is lost and met again"
				x.others()
				view(1, 2, 4)
				x.settle(b)
				x.phase = "all is swept"
				for range 30 * 60 {
					x.now += int64(time.Second)
					for _, s := range x.streams {
						x.call("Sweep", func() { s.Sweep(x.now) })
					}
				}
				b.ReportMetric(float64(x.frames), "frames")
				b.ReportMetric(float64(x.bytes)/1e6, "MB")
			}
			h.report(b)
		})
	}
}

// ofFrozen are roles where the first node has authority over everything, and the second
// one stands in for it.
type ofFrozen struct{ self, answers Member }

func (r ofFrozen) Holds(bucket.ID) bool     { return r.self == 1 }
func (r ofFrozen) Holder(bucket.ID) Member  { return 1 }
func (r ofFrozen) Answers(bucket.ID) Member { return r.answers }
func (r ofFrozen) Targets(dst []Member, _ bucket.ID) []Member {
	if r.self == 1 {
		return append(dst, 2)
	}
	return append(dst, 1, 3)
}

// BenchmarkThaw is what it takes until a node that was frozen for 45 s has been told what
// the others spent of 240,000 keys of its meanwhile, at 20,000 checks a second, which go
// on: by two frames a millisecond, one each way between each two.
func BenchmarkThaw(b *testing.B) {
	const (
		keys      = 240_000
		perSecond = 20_000
		frozen    = 45
	)
	limit := bucket.Limit{Algorithm: bucket.SlidingWindow, Rate: 1000, Per: time.Hour}
	ids := randomIDs(keys)
	h := &held{now: clock(b)}
	for b.Loop() {
		x := newSteps(h, 3, 1<<20)
		random := rand.New(rand.NewPCG(3, 4))
		spent := make([]int64, keys)
		checks := func(node int) {
			for range perSecond / 1000 {
				i := random.IntN(keys)
				if x.stores[node].Take(ids[i], &limit, x.now, 1).Allowed {
					spent[i]++
				}
			}
		}
		view := func(answers Member) {
			for i := range x.streams {
				x.roles[i] = ofFrozen{Member(i + 1), answers}
			}
		}
		view(1)
		x.phase = "all is well"
		for range 12_000 {
			checks(0)
			x.round(b)
		}
		x.settle(b)
		x.phase = "one is frozen"
		view(2)
		x.asleep = 1
		for i, s := range x.streams[1:] {
			x.call("Review", func() { s.Review(x.now, x.roles[i+1]) })
		}
		for i := range frozen * 1000 {
			checks(1 + i%2) // also with a node that has yet to hear of the stand-in
			x.round(b)
		}
		known := x.streams[1].Tallies()
		x.phase = "it is back"
		view(1)
		x.asleep = 0
		begun := x.now
		for i, s := range x.streams {
			x.call("Review", func() { s.Review(x.now, x.roles[i]) })
		}
		for sent := true; sent; {
			if x.now-begun < int64(time.Second) {
				checks(0)
			}
			sent = x.round(b) || x.now-begun < int64(time.Second)
		}
		for i, id := range ids {
			for node := range x.stores[:2] {
				if used, _, _ := x.stores[node].Used(id, x.now); used != spent[i] {
					b.Fatalf("%d of key %d at %d, not %d", used, i, node+1, spent[i])
				}
			}
		}
		b.ReportMetric(time.Duration(x.now-begun).Seconds(), "exact-s")
		b.ReportMetric(float64(known), "tallies")
		b.ReportMetric(float64(x.bytes)/1e6, "MB")
	}
	h.report(b)
}
