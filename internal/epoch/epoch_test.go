package epoch

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/internal/wire"
)

const hour = int64(time.Hour)

// newBegunClock returns the clock of a node that begins an epoch at a time.
func newBegunClock(epoch uint64, at int64) *Clock {
	c := New(at)
	c.Begin(epoch)
	return c
}

func TestGreaterOfTwoEpochsIsAdopted(t *testing.T) {
	small, great := newBegunClock(3, 0), newBegunClock(5, 2*hour)
	old := small.Now(hour)
	now := 3 * hour
	small.Meet(great.State(now), now)
	great.Meet(State{Moment: Moment{3, now}}, now)
	require.Equal(t, Moment{5, hour}, small.Now(now))
	require.Equal(t, small.State(now), great.State(now))
	for _, c := range []*Clock{small, great} {
		ago, ok := c.TimeSince(old, now)
		require.True(t, ok)
		require.Equal(t, 2*hour, ago)
		require.Equal(t, hour, c.Before(old), "the present epoch began an hour after this moment")
	}
	_, ok := small.TimeSince(Moment{4, 1}, now)
	require.False(t, ok, "no clock knows this epoch")
	_, ok = small.TimeSince(Moment{0, 1}, now)
	require.False(t, ok, "a moment of epoch 0 cannot be placed")
}

// The duration of a stop is not known, so a moment before a stop has no age after it.
func TestMomentsBeforeStopAreOrdered(t *testing.T) {
	before := newBegunClock(9, 0)
	early, late := before.State(hour), before.State(5*hour)
	for _, found := range [][]State{{early, late}, {late, early}} {
		next := New(100 * hour)
		for _, s := range found {
			next.Find(s)
		}
		next.Begin(2)
		require.Equal(t, 4*hour, next.Before(early.Moment))
		require.Zero(t, next.Before(late.Moment))
		_, ok := next.TimeSince(late.Moment, 101*hour)
		require.False(t, ok)

		// Another node that starts later finds only the early state, and learns the rest from the
		// first node.
		other := New(100*hour + hour/60)
		other.Find(early)
		require.Zero(t, other.Before(early.Moment))
		other.Meet(next.State(100*hour+hour/60), 100*hour+hour/60)
		require.Equal(t, 4*hour, other.Before(early.Moment))

		// After another stop, a node learns the relations from a snapshot of the second run.
		third := New(200 * hour)
		third.Find(next.State(100*hour + 2*hour))
		require.Equal(t, 6*hour, third.Before(early.Moment))
		require.Equal(t, 2*hour, third.Before(late.Moment))
	}
}

// Two epochs that forked from one run are not related: the duration of one epoch does not make the
// moments of the other epoch older.
func TestUnrelatedEpochsAreNotCompared(t *testing.T) {
	origin := newBegunClock(9, 0).State(hour)
	a, b := New(0), New(0)
	for epoch, c := range map[uint64]*Clock{1: a, 2: b} {
		c.Find(origin)
		c.Begin(epoch)
	}
	next := New(0)
	next.Find(a.State(hour))
	next.Find(b.State(20 * hour))
	require.Zero(t, next.Before(Moment{1, hour}))
	require.Zero(t, next.Before(Moment{2, 20 * hour}))
	require.Equal(t, 20*hour, next.Before(origin.Moment), "both epochs followed the original one")
}

func TestEncodedStateDecodesUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := State{Moment: Moment{rapid.Uint64().Draw(t, "epoch"), rapid.Int64Range(0, maxAge).Draw(t, "age")}}
		for range rapid.IntRange(0, MaxRelations).Draw(t, "relations") {
			s.Relations = append(s.Relations, Relation{
				rapid.Uint64().Draw(t, "other"), rapid.Int64Range(-maxAge, maxAge).Draw(t, "offset"), rapid.Bool().Draw(t, "stopped"),
			})
		}
		b := s.Append(nil)
		require.LessOrEqual(t, len(b), StateBytes)
		c := wire.NewCursor(b)
		require.Equal(t, s, Read(&c))
		require.NoError(t, c.Err())
		require.Zero(t, c.Remaining())
		cut := wire.NewCursor(b[:len(b)-1])
		Read(&cut)
		require.Error(t, cut.Err())
	})
}

// Nodes that began at different times exchange their states in any order. If a node can place a moment,
// it finds the age that the moment has by a clock that never stopped. In the end, all nodes have one
// epoch.
func TestMeetingKeepsOrderOfMoments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var clocks []*Clock
		type placed struct {
			Moment
			at int64
		}
		var moments []placed
		now := hour
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.Int64Range(0, hour).Draw(t, "later")
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				if len(clocks) < 8 {
					clocks = append(clocks, New(now))
				}
			case 1:
				for i, c := range clocks {
					if rapid.IntRange(0, 4).Draw(t, "begins") == 0 {
						c.Begin(uint64(10*i) + rapid.Uint64Range(1, 9).Draw(t, "epoch"))
						moments = append(moments, placed{c.Now(now), now})
					}
				}
			default:
				if len(clocks) > 1 {
					a, b := clocks[rapid.IntRange(0, len(clocks)-1).Draw(t, "a")], clocks[rapid.IntRange(0, len(clocks)-1).Draw(t, "b")]
					if a != b {
						a.Meet(b.State(now), now)
					}
				}
			}
			for _, c := range clocks {
				for _, m := range moments {
					if ago, ok := c.TimeSince(m.Moment, now); ok {
						require.Equal(t, now-m.at, ago)
					}
				}
			}
		}
		for range 2 { // after two rounds, all nodes know each other
			for _, a := range clocks {
				for _, b := range clocks {
					if a != b {
						a.Meet(b.State(now), now)
					}
				}
			}
		}
		for _, c := range clocks {
			require.Equal(t, clocks[0].Now(now).Epoch, c.Now(now).Epoch)
		}
	})
}

func TestForeignNumbersDoNotOverflow(t *testing.T) {
	c := newBegunClock(1, 0)
	for _, offset := range []int64{math.MinInt64, -maxAge, maxAge, math.MaxInt64} {
		for _, age := range []int64{0, maxAge} {
			c.Meet(State{Moment{7, age}, []Relation{{8, max(-maxAge, min(offset, maxAge)), false}}}, hour)
			c.Find(State{Moment{9, age}, []Relation{{8, max(-maxAge, min(offset, maxAge)), true}}})
			require.GreaterOrEqual(t, c.Before(Moment{8, age}), int64(0))
		}
	}
	for i := range uint64(3 * MaxRelations) {
		c.Meet(State{Moment: Moment{Epoch: 1000 + i}}, hour)
	}
	require.Len(t, c.State(hour).Relations, MaxRelations)
}
