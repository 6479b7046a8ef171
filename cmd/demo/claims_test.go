package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// seenRun is a run of three regions whose customers got all that they could, by an
// exact limiter: what they saw can be changed before it is judged.
type seenRun struct {
	planet *planet
	ledger *ledger
	done   []phase
	over   int64
}

func newSeenRun() *seenRun {
	const length = 36 * time.Second
	p := &planet{regions: regionNames[:3], limit: 50, per: 2 * time.Second}
	r := &seenRun{planet: p, done: journey(p.regions, length), over: int64(length)}
	p.now.Store(&r.done[0])
	for _, ph := range r.done {
		p.began = append(p.began, int64(ph.after))
	}
	r.ledger = newLedger(p)
	const pace = 5 * time.Millisecond
	for i, last := 0, [customers][]int64{}; ; i++ {
		at := int64(i) * int64(pace)
		if at >= r.over {
			break
		}
		for _, ph := range r.done {
			if at >= int64(ph.after) {
				p.now.Store(&ph)
			}
		}
		ph, customer := p.now.Load(), i%customers
		region := max(0, ph.moved)
		if ph.moved < 0 {
			region = i / customers % 3
		}
		a := answer{client: customer, sent: at, done: at, check: span{at, at + 1}, source: "owner"}
		log := &last[customer]
		if n := len(*log); n < int(p.limit) || at+1-(*log)[n-int(p.limit)] >= int64(p.per) {
			a.allowed = true
			*log = append(*log, at+1)
		}
		r.ledger.add(region, false, a)
	}
	r.ledger.visited(smallRate, 0, 200*time.Millisecond)
	return r
}

func (r *seenRun) judge() *findings { return r.planet.judge(r.ledger, r.done, r.over) }

func TestWhatAnExactLimiterGrantsBreaksNothing(t *testing.T) {
	v := newSeenRun().judge()
	require.Empty(t, v.failures())
	var seen []string
	for _, c := range v.claims {
		seen = append(seen, c.name)
	}
	for _, claim := range []string{"used", "moved", "returned", "healed", "small", "global", "cut", "p99", "p99, cut"} {
		require.Contains(t, seen, claim)
	}
	var said strings.Builder
	v.print(&said, palette(false))
	require.Contains(t, said.String(), "Every promise held.")
}

func TestEachClaimCanBeBroken(t *testing.T) {
	t.Parallel()
	second := int64(time.Second)
	for _, c := range []struct {
		name, says string
		breaks     func(r *seenRun)
	}{
		{"one more in a window over all regions", "global: 51 of 50", func(r *seenRun) {
			r.ledger.global[2][0] = append(r.ledger.global[2][0], admission{5*second + 10, 5*second + 11})
		}},
		{"one more in a window of the cut", "cut: 51 of 50", func(r *seenRun) {
			r.ledger.global[2][1] = append(r.ledger.global[2][1], admission{25*second + 10, 25*second + 11})
		}},
		{"a region without what it could use", "used: ", func(r *seenRun) { r.lose(0, 3*second, 6*second) }},
		{"a region to which nothing moves", "moved: ", func(r *seenRun) { r.lose(1, 11*second, 15*second) }},
		{"what was lent does not come back", "returned: ", func(r *seenRun) { r.lose(2, 29*second, 31*second) }},
		{"regions that do not find each other again", "healed: ", func(r *seenRun) { r.lose(0, 33*second, 36*second) }},
		{"a user who waits for a small limit", "small: 501 ms", func(r *seenRun) {
			r.ledger.visited(smallRate, 0, smallWithin+time.Millisecond)
		}},
		{"a user who gets less than a small limit", "small: ", func(r *seenRun) { r.ledger.visited(smallRate-1, 0, 0) }},
		{"a user who gets more than a small limit", "small: ", func(r *seenRun) { r.ledger.visited(smallRate, 1, 0) }},
		{"checks that wait for another region", "p99: 100 ms", func(r *seenRun) {
			for range 200 {
				r.ledger.calm.global.add(span{0, int64(100 * time.Millisecond)}, nil)
			}
		}},
		{"more than a region's own limit", "regional: 6 of 5", func(r *seenRun) {
			for i := range int64(6) {
				r.ledger.local[1][0] = append(r.ledger.local[1][0], admission{i, i + 1})
			}
		}},
		{"an error", "errors: 1", func(r *seenRun) { r.ledger.add(0, false, answer{err: errors.New("refused")}) }},
		{"a stall", "stalls: 1", func(r *seenRun) {
			r.ledger.add(0, false, answer{took: planetStall + time.Millisecond, source: "owner", check: span{1, 2}})
		}},
		{"no request", "requests: 0", func(r *seenRun) { r.ledger = newLedger(r.planet) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newSeenRun()
			c.breaks(r)
			failures := r.judge().failures()
			require.NotEmpty(t, failures)
			require.Contains(t, strings.Join(failures, "\n"), c.says)
		})
	}
}

// lose takes from a region what it was granted between two moments.
func (r *seenRun) lose(region int, from, to int64) {
	for customer := range customers {
		of := &r.ledger.global[region][customer]
		*of = slices.DeleteFunc(*of, func(a admission) bool { return a.to >= from && a.to < to })
	}
}

func TestWhatAMachineThatStoodStillDelayedIsNoWait(t *testing.T) {
	r := newSeenRun()
	r.ledger.lateness.Add(moments([]span{{0, int64(time.Second)}})[0])
	for range 200 {
		r.ledger.calm.global.add(span{0, int64(100 * time.Millisecond)}, nil)
	}
	require.Empty(t, r.judge().failures())
}

func TestWhatKeepsChecksWaitingThatNeverLeaveTheRegionIsTheMachine(t *testing.T) {
	r := newSeenRun()
	r.ledger.calm = checks{}
	part := func(of *timed, late int) {
		for i := range 1000 {
			took := time.Millisecond
			if i < late {
				took = 100 * time.Millisecond
			}
			of.add(span{0, int64(took)}, nil)
		}
	}
	part(&r.ledger.calm.global, 30)
	part(&r.ledger.calm.regional, 20)
	require.Empty(t, r.judge().failures())
	part(&r.ledger.calm.global, 32)
	require.Len(t, r.judge().failures(), 1)
}

func TestAWindowInWhichAChecksOwnerWasNotReachedHasItsOwnPromise(t *testing.T) {
	r := newSeenRun()
	at := int64(5 * time.Second)
	r.ledger.add(2, false, answer{check: span{at + 10, at + 11}, source: "budget", allowed: true})
	require.Empty(t, r.judge().failures())
}

func TestARunThatEndsEarlyIsJudgedByWhatWasSeen(t *testing.T) {
	r := newSeenRun()
	r.done, r.over = r.done[:1], int64(time.Second)
	r.planet.began = r.planet.began[:1]
	require.Empty(t, r.judge().failures())
}

func TestTheRegionsTableFitsAnyTerminal(t *testing.T) {
	r := newSeenRun()
	g := &globe{planet: r.planet, ledger: r.ledger, begun: time.Unix(0, 0), length: 36 * time.Second, coming: r.done[3:]}
	g.last.taken = []time.Time{time.Unix(0, 0)}
	fleets := &fleet{nodes: 2}
	r.planet.fleets = []*fleet{fleets, fleets, fleets}
	now := time.Unix(0, r.over)
	g.take(now)
	f := g.frame(now)
	for width := 10; width < 160; width += 10 {
		for height := 1; height < 40; height += 3 {
			lines := f.lines(width, height)
			require.LessOrEqual(t, len(lines), max(1, height-1))
			for _, l := range lines {
				require.LessOrEqual(t, len([]rune(l.render(false, width))), width)
			}
		}
	}
	text := ""
	for _, l := range f.lines(140, 30) {
		text += l.render(false, 140) + "\n"
	}
	require.Contains(t, text, "all regions")
	require.Contains(t, text, "of 50")
	require.Contains(t, f.short(), "sum ")
}
