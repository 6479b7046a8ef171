package bucket

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/weir-go/weir/internal/testenv"
)

// A count that has aged in a file and is then imported must equal a count that has aged in a
// store.
func TestAgedCountEqualsCountAgedInStore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := Limit{
			Algorithm: Algorithm(rapid.IntRange(0, int(LeakyBucket)).Draw(t, "algorithm")),
			Rate:      rapid.Int64Range(1, 20).Draw(t, "rate"), Per: time.Duration(rapid.Int64Range(1, 20).Draw(t, "seconds")) * time.Second,
		}
		id := ID{1, 2}
		now := int64(1_700_000_000_000_000_000)
		from := NewStore(10, Salt{})
		for range rapid.IntRange(1, 12).Draw(t, "takes") {
			from.Take(id, &limit, now, rapid.Int64Range(1, 4).Draw(t, "units"))
			now += rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "pause")
		}
		passed := rapid.Int64Range(-int64(time.Second), int64(40*time.Second)).Draw(t, "passed")
		var aged Count
		from.Export(id, now, Mark{}, &aged)
		if _, err := aged.Parse(aged.Append(nil)); err != nil {
			t.Fatal(err)
		}
		aged.Age(passed)
		later := now + max(0, passed)
		into := NewStore(10, Salt{})
		into.Import(id, &aged, later, 0)
		if used := aged.Used(later); used != usedOf(into, id, later) {
			t.Fatalf("the count states %d used, and %d are once it is imported", used, usedOf(into, id, later))
		}
		if usedOf(into, id, later) > 0 {
			require.Equal(t, into.RecoversIn(id, later), aged.RecoversIn(later))
		}
		for at := later; at < later+int64(50*time.Second); at += int64(500 * time.Millisecond) {
			if want, got := usedOf(from, id, at), usedOf(into, id, at); got != want {
				t.Fatalf("%v after it was written, %d units are used; in the store that it came from %d", time.Duration(at-now), got, want)
			}
		}
	})
}

func usedOf(s *Store, id ID, now int64) int64 {
	used, _, _ := s.Used(id, now)
	return used
}

// The code of a limit is its algorithm, unless Durable differs from the default for its Per or MaxOfCopies is set.
func TestLimitCodeContainsDurableAndMaxOfCopies(t *testing.T) {
	for _, l := range []Limit{{Per: time.Minute}, {Per: time.Hour, Durable: true}, {Per: time.Minute, Durable: true}, {Per: time.Hour}} {
		for _, l.MaxOfCopies = range []bool{false, true} {
			for l.Algorithm = SlidingWindow; l.Algorithm < InFlight; l.Algorithm++ {
				require.Equal(t, l.Durable == l.DurableByPer() && !l.MaxOfCopies, l.Code() == byte(l.Algorithm), "%+v", l)
				read := Limit{Per: l.Per}
				read.SetCode(l.Code())
				require.Equal(t, l, read)
			}
		}
	}
}

// A store whose clock is behind the clock of the exporting store still sees all used units.
func TestSlowClockSeesAllCalendarUnits(t *testing.T) {
	id, now := ID{1, 2}, int64(1_700_000_000_000_000_000)
	limit := Limit{Algorithm: FixedWindow, Rate: 10, Per: 24 * time.Hour, Start: now - int64(time.Hour)}
	s := NewStore(10, Salt{})
	s.Take(id, &limit, now, 4)
	var c Count
	s.Export(id, now, Mark{}, &c)
	for _, behind := range []time.Duration{0, 1, time.Second, 2 * time.Hour} {
		if used := c.Used(now - int64(behind)); used != 4 {
			t.Errorf("%v behind, %d of 4 units are used", behind, used)
		}
	}
}
