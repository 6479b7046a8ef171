package countsync

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
)

// The copies may arrive in any order, and several times. The timer of each copy must end at the latest
// end that the copy includes, within a unit for each step.
func TestCopyOfTimerEndsAtLatestKnownEnd(t *testing.T) {
	checks(t, 300, 2000)
	type end struct {
		origin Member
		spent  int64 // the spent units of the origin's tally that include this end
		at     int64
	}
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second}).Draw(t, "unit")
		g := newGossip(bucket.TimerLimit(time.Hour, unit), rapid.IntRange(2, 4).Draw(t, "nodes"))
		var ends []end
		for steps := range rapid.IntRange(1, 60).Draw(t, "steps") {
			h := g.keepers[rapid.IntRange(0, len(g.keepers)-1).Draw(t, "node")]
			switch op := rapid.IntRange(0, 4).Draw(t, "op"); {
			case op == 0:
				g.now += int64(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 20 * time.Second}).Draw(t, "later"))
			case op == 1:
				d := time.Duration(rapid.IntRange(1, 100).Draw(t, "seconds")) * time.Second
				units := max(0, int64(d/unit)-int64(h.store.RecoversIn(g.id, g.now)/unit))
				h.store.Debit(g.id, &g.limit, g.now, int64(d/unit))
				h.v = h.v.add(h.name, 0, units, g.now)
				if units > 0 { // otherwise the node knows of a later end
					ends = append(ends, end{h.name, h.v.tallyOf(h.name).spent, g.now + int64(d)})
				}
			case op == 2:
				g.post(h)
			case len(g.wire) > 0:
				g.read(h, g.wire[rapid.IntRange(0, len(g.wire)-1).Draw(t, "letter")])
			}
			for _, h := range g.keepers {
				latest := g.now
				for _, e := range ends {
					if e.spent <= h.v.tallyOf(e.origin).spent {
						latest = max(latest, e.at)
					}
				}
				off := g.now + int64(h.store.RecoversIn(g.id, g.now)) - latest
				if slack := int64(steps+1) * int64(unit); off < -slack || off > slack {
					t.Fatalf("node %d ends %v after the latest end that it knows", h.name, time.Duration(off))
				}
			}
		}
	})
}

func TestMaxOfCopiesGrowsByUnknownUnitsAtMost(t *testing.T) {
	times := ages{maxOfCopies: true, recovered: 1 << 62, late: 1 << 62}
	for used, want := range map[int64]int64{0: 3, 8: 2, 10: 0, 20: 0} {
		require.Equal(t, want, vector{}.unitsOnTop(vector{{origin: 4, spent: 3}}, used, 10, times), used)
	}
}
