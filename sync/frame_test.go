package countsync

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
	_ "github.com/weir-go/weir/internal/testenv"
)

// answerBytes is the minimum size of an answer.
const answerBytes = 11

// newUsedLink returns two nodes that have taken units of ten ids, with limits of all algorithms.
func newUsedLink(t testing.TB, durable bool) *link {
	l := newLink(t)
	for x := range 10 {
		limit := limitOf(bucket.Algorithm(x % 5))
		limit.Durable = durable
		if x == 7 {
			limit.Start = l.now - 1
		}
		for k := range 20 {
			l.stores[k%2].Take(someID(x), &limit, l.now+int64(k), 3)
		}
	}
	return l
}

// frames returns a list of examples for frames and for answers.
func frames(t testing.TB) (list [][]byte) {
	l := newUsedLink(t, false)
	l.streams[0].Owe(2, All())
	l.streams[0].Reset(someID(3), l.now)
	l.streams[0].Transfer(2, 3, NewRanges(Range{1, 2}, Range{7, 1 << 60}), l.now)
	l.streams[1].Leaving()
	l.streams[1].RequestCounts()
	for range 4 {
		for i, s := range l.streams {
			s.Collect(l.now, false, l.roles(i))
			frame := s.Next(Member(2-i), l.now, l.roles(i), nil, 300)
			if frame == nil {
				continue
			}
			answer, _, err := l.streams[1-i].Serve(l.now, frame, l.roles(1-i), nil)
			require.NoError(t, err)
			s.Answered(Member(2-i), l.now, answer, l.roles(i))
			list = append(list, frame, answer)
		}
	}
	return list
}

// holder contains the roles in fuzz tests: the node holds some ids.
type holder struct{}

func (holder) Holds(id bucket.ID) bool    { return id.Hi&1 == 1 }
func (holder) Holder(id bucket.ID) Member { return Member(id.Hi & 1) }
func (holder) Answers(id bucket.ID) Member {
	return Member(id.Hi >> 1 & 1)
}
func (holder) Targets(dst []Member, id bucket.ID) []Member {
	return append(dst, 1)
}

func FuzzServe(f *testing.F) {
	for _, b := range frames(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		store := bucket.NewStore(100, bucket.Salt{})
		store.Track(1, 1, nil)
		for _, self := range []Member{1, 2} {
			s := New(self, store)
			s.Meet([]Member{1, 2})
			now := int64(time.Hour)
			answer, a, err := s.Serve(now, b, holder{}, nil)
			if err != nil {
				continue
			}
			if a.From == 0 || a.From == self {
				t.Fatalf("%d is told that it is from %d", self, a.From)
			}
			if len(answer) < answerBytes {
				t.Fatalf("an answer of %d bytes", len(answer))
			}
			again, b2, err := s.Serve(now, b, holder{}, nil)
			if err != nil || string(again) != string(answer) || b2.Authority != nil || b2.Complete {
				t.Fatal("the same frame is applied twice")
			}
			// If a frame with a new number brings the same contents again, the counts do not
			// grow.
			s.Collect(now, false, holder{})
			before := copies(s, now)
			number := binary.LittleEndian.Uint64(b[18:])
			for range 2 {
				if number++; number == 0 {
					break
				}
				binary.LittleEndian.PutUint64(b[18:], number)
				if _, _, err := s.Serve(now, b, holder{}, nil); err != nil {
					t.Fatal(err)
				}
			}
			for id, c := range copies(s, now) {
				was := before[id]
				if !was.vector.covers(c.vector) || !c.vector.covers(was.vector) || c.used > was.used {
					t.Fatalf("%v has become %v", was, c)
				}
			}
			// The applied data can be sent on.
			sendAll(t, s, now)
		}
	})
}

// sendAll makes a stream send its data to two members. For each member, ten frames are lost.
func sendAll(t *testing.T, s *Stream, now int64) {
	t.Helper()
	s.Collect(now, false, holder{})
	for range 10 {
		for _, m := range []Member{1, 2} {
			frame := s.Next(m, now, holder{}, nil, 1000)
			require.LessOrEqual(t, len(frame), maxFrame, "a frame of %d bytes", len(frame))
			s.Lost(m)
		}
	}
	s.Sweep(now)
	s.Review(now, holder{})
}

// copies returns the copies of all ids with tallies in the ledger.
func copies(s *Stream, now int64) map[bucket.ID]copyOf {
	list := make(map[bucket.ID]copyOf)
	for id := range s.ledger.first {
		used, _, _ := s.store.Used(id, now)
		list[id] = copyOf{used, s.vector(nil, id, now)}
	}
	return list
}

// appendTallies appends a vector as the first vector of a frame.
func appendTallies(b []byte, v vector, now int64) []byte { return new(origins).appendVector(b, v, now) }

// Any vector arrives unchanged, with the times by the clock of the receiver.
func TestVectorSurvivesEncoding(t *testing.T) {
	checks(t, 200, 2000)
	rapid.Check(t, func(t *rapid.T) {
		now, theirs := rapid.Int64Range(0, 1<<60).Draw(t, "now"), rapid.Int64Range(0, 1<<60).Draw(t, "theirs")
		s := New(1, bucket.NewStore(10, bucket.Salt{}))
		id := someID(rapid.IntRange(0, 9).Draw(t, "id"))
		var want vector
		for _, origin := range rapid.SliceOfNDistinct(rapid.Uint64Min(1), 0, 20, rapid.ID).Draw(t, "origins") {
			x := tally{
				origin: origin, series: rapid.Int64Min(0).Draw(t, "series"),
				expired: rapid.Int64Range(0, maxUnits).Draw(t, "gone"),
				spent:   rapid.Int64Range(0, maxUnits).Draw(t, "spent"), refunded: rapid.Int64Range(0, maxUnits).Draw(t, "refunded"),
				changed: now - rapid.Int64Range(-5, maxUnits).Draw(t, "age"),
			}
			s.ledger.add(id, x)
			x.changed = theirs - max(0, now-x.changed) // no time is in the future
			want = append(want, x)
		}
		slices.SortFunc(want, func(a, b tally) int { return cmp.Compare(a.origin, b.origin) })
		b := appendTallies(nil, s.ledger.vector(nil, id), now)
		r := reader{b: append(b, 7)}
		if got := new(origins).vector(&r, nil, theirs); r.err != nil || !slices.Equal(got, want) || len(r.b) != 1 {
			t.Fatalf("%v arrives as %v, %v", want, got, r.err)
		}
		if again := (reader{b: appendTallies(nil, want, theirs)}); !slices.Equal(new(origins).vector(&again, nil, theirs), want) {
			t.Fatalf("of %v another comes when it is sent on", want)
		}
		for cut := range b {
			if r := (reader{b: b[:cut]}); len(new(origins).vector(&r, nil, theirs)) > len(want) || r.err == nil {
				t.Fatalf("%d of %d bytes are enough", cut, len(b))
			}
		}
	})
}

func TestFrameHasTheLatestTalliesOfALongVector(t *testing.T) {
	many := make(vector, maxTallies+2)
	for i := range many {
		many[i] = tally{origin: Member(i + 1), spent: 1, changed: int64(i * 7919 % len(many))}
	}
	r := reader{b: appendTallies(nil, many, int64(len(many)))}
	got := new(origins).vector(&r, nil, int64(len(many)))
	want := slices.DeleteFunc(slices.Clone(many), func(x tally) bool { return x.changed < 2 })
	if r.err != nil || len(want) != maxTallies || !slices.Equal(got, want) {
		t.Errorf("%d tallies arrived, %v, where the %d that grew last are due", len(got), r.err, len(want))
	}
}

func TestMalformedVectorIsRejected(t *testing.T) {
	good := vector{{origin: 1, series: 5, spent: 7}, {origin: 3}}
	many := make(vector, maxTallies+1)
	for i := range many {
		many[i].origin = Member(i + 1)
	}
	for name, c := range map[string]struct {
		b  []byte
		ok bool
	}{
		"an empty vector":      {appendTallies(nil, nil, 0), true},
		"two":                  {appendTallies(nil, good, 0), true},
		"the maximum":          {appendTallies(nil, many[:maxTallies], 0), true},
		"too many":             {append(binary.AppendUvarint(nil, maxTallies+1), appendTallies(nil, many[:maxTallies], 0)[2:]...), false},
		"fewer than announced": {append([]byte{3}, appendTallies(nil, good, 0)[1:]...), false},
		"no origin":            {appendTallies(nil, vector{{origin: 0}}, 0), false},
		"an origin twice":      {appendTallies(nil, vector{good[0], good[1], good[0]}, 0), false},
		"a series below zero":  {appendTallies(nil, vector{{origin: 1, series: -1}}, 0), false},
		"units that overflow":  {appendTallies(nil, vector{{origin: 1, spent: -1, refunded: -1}}, 0), true},
		"a number without end": {append([]byte{1}, bytes.Repeat([]byte{0xff}, 60)...), false},
		"no bytes":             {nil, false},
	} {
		r := reader{b: c.b}
		v := new(origins).vector(&r, nil, 0)
		assert.Equal(t, c.ok, r.err == nil, "%s: %v, %v", name, v, r.err)
		for _, x := range v {
			if x.spent < 0 || x.spent > maxUnits || x.refunded < 0 || x.refunded > maxUnits || x.origin == 0 {
				t.Errorf("%s: %v", name, v)
			}
		}
	}
}

func TestLimitSurvivesEncoding(t *testing.T) {
	list := []bucket.Limit{
		{Algorithm: bucket.FixedWindow, Rate: 5, Per: 23 * time.Hour, Start: 1 << 61, Version: 7},
		{Algorithm: bucket.FixedWindow, Rate: 0, Per: time.Hour, Start: -1},
		{Algorithm: bucket.FixedWindow, Rate: 5, Per: time.Hour},
		{Algorithm: bucket.TokenBucket, Rate: 5, Per: time.Hour, Burst: -1},
		{Algorithm: bucket.SlidingWindow, Rate: 5, Per: time.Hour},
	}
	var sent, came limits
	var b []byte
	for range 2 {
		for _, l := range list {
			i, ok := sent.index(&l)
			require.True(t, ok)
			b = sent.append(b, &l, i)
		}
	}
	r := reader{b: b}
	for range 2 {
		for _, l := range list {
			require.Equal(t, l, came.read(&r))
		}
	}
	require.NoError(t, r.err)
	require.Empty(t, r.b)
	require.Equal(t, limits(list), came)
}

func FuzzAnswered(f *testing.F) {
	for _, b := range frames(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, store := streamOf(1, 100, 2)
		roles := new(link).roles(0)
		limit := limitOf(bucket.SlidingLog)
		for x := range 20 {
			store.Take(someID(x), &limit, 1, 1)
		}
		s.Collect(1, false, roles)
		frame := s.Next(2, 1, roles, nil, 500)
		if len(b) > answerBytes {
			copy(b[2:], frame[18:headerBytes]) // otherwise the input would never be the answer to the frame
		}
		if _, err := s.Answered(2, 2, b, roles); err == nil {
			s.Next(2, 3, roles, nil, 500)
		}
	})
}

func TestServeRejectsMisdirectedAndMalformedFrames(t *testing.T) {
	s := New(2, bucket.NewStore(10, bucket.Salt{}))
	good := append(appendHeader(nil, 0, 1, 2, 5), 0)
	one := func(item ...byte) []byte {
		return append(appendID(append(appendHeader(nil, 0, 1, 2, 6), 1), someID(1)), item...)
	}
	answer, a, err := s.Serve(1, good, holder{}, nil)
	require.NoError(t, err)
	require.Equal(t, Arrival{From: 1}, a)
	require.Equal(t, appendAnswer(nil, 5, nil), answer)
	for name, bad := range map[string][]byte{
		"empty":               {},
		"short":               good[:20],
		"version":             append([]byte{9}, good[1:]...),
		"flags":               appendHeader(nil, 0x80, 1, 2, 6),
		"another receiver":    appendHeader(nil, 0, 1, 3, 6),
		"no sender":           appendHeader(nil, 0, 0, 2, 6),
		"from itself":         appendHeader(nil, 0, 2, 2, 6),
		"no number":           appendHeader(nil, 0, 1, 2, 0),
		"half an id":          append(appendHeader(nil, 0, 1, 2, 6), 1, 2, 3),
		"missing ids":         append(appendHeader(nil, 0, 1, 2, 6), 2, 3),
		"trailing bytes":      append(appendHeader(nil, 0, 1, 2, 6), 0, 1),
		"no item":             one(),
		"too many ranges":     appendRanges(appendHeader(nil, flagTransfer, 1, 2, 6), 1, make(Ranges, 1))[:headerBytes+3],
		"no kind":             one(0),
		"an undefined limit":  one(byte(state)|itemLimit, 3),
		"an undefined vector": one(byte(spend)|itemVector, 2),
		"an origin twice":     appendTallies(one(byte(spend)|itemVector), vector{{origin: 3}, {origin: 3}}, 0),
		"too long":            append(good[:18:18], make([]byte, maxFrame)...),
	} {
		_, _, err := s.Serve(1, bad, holder{}, nil)
		require.ErrorIs(t, err, errFrame, name)
	}
}
