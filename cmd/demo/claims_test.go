package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/lab"
)

// seenRun is a run of three regions in which customers received all units that an exact
// limiter grants. A test can change the recorded answers before it judges the run.
type seenRun struct {
	*monitor
	over int64
}

func newSeenRun() *seenRun {
	m := newMonitor(options{regions: 3, nodes: 2, limit: 50, duration: 36 * time.Second}, nil)
	r := &seenRun{m, int64(m.options.duration)}
	m.begun = time.Unix(0, 0)
	for i := range m.nodes {
		m.current[i] = &incarnation{gateway: i, condition: up}
	}
	const pace = 5 * time.Millisecond
	for i, last := 0, [customers][]int64{}; ; i++ {
		at := int64(i) * int64(pace)
		if at >= r.over {
			return r
		}
		if len(m.coming) > 0 && at >= int64(m.coming[0].after) {
			m.happened, m.asks = append(m.happened, happening{step: m.coming[0], from: at}), m.coming[0].asks
			m.coming = m.coming[1:]
		}
		customer, region := i%customers, m.asks[0]
		if len(m.asks) > 1 { // all regions send requests
			region = i / customers % 3
		}
		allowed, log := false, &last[customer]
		if n := len(*log); n < int(m.limit) || at+1-(*log)[n-int(m.limit)] >= int64(m.per) {
			allowed, *log = true, append(*log, at+1)
		}
		r.answers(region, answer{account: account{"/", customer}, sent: at, done: at + 1, check: lab.Between(at, at+1), allowed: allowed})
	}
}

// answers records an answer in a region.
func (r *seenRun) answers(region int, a answer) {
	a.to = r.current[region*r.each]
	r.tally.add(a)
}

// checks adds n checks of the given duration, at a time at which all regions reach each other.
func (r *seenRun) checks(n int, path string, took time.Duration) {
	for range n {
		r.answers(0, answer{account: account{path, 1}, done: int64(took), check: lab.Between(0, int64(took))})
	}
}

func (r *seenRun) judge() *findings { return r.monitor.judge(r.over) }

func TestExactLimiterBreaksNoPromise(t *testing.T) {
	v := newSeenRun().judge()
	require.Empty(t, v.failures())
	var seen []string
	for _, c := range slices.Concat(v.claims, v.windows) {
		seen = append(seen, c.name)
	}
	for _, claim := range []string{"used", "moved", "returned", "healed", "global", "cut", "p99", "p99, cut"} {
		require.Contains(t, seen, claim)
	}
	require.Equal(t, []string{
		"Every promise held.",
		"3 regions of 2 gateways answered 7,200 requests while demand moved, one region was cut off; 0 failed and 0 stalled.",
		"All regions together granted a customer at most 50 in 2s. The limit is 50.",
	}, strings.Split(printed(v, plainWidth), "\n")[:3])
}

func TestEachClaimCanBeBroken(t *testing.T) {
	t.Parallel()
	second := int64(time.Second)
	for _, c := range []struct {
		name, says string
		breaks     func(r *seenRun)
	}{
		{"one more in a window over all regions", "a client was granted 51 in one of the windows of 2s over all regions without a cut", func(r *seenRun) {
			r.answers(2, answer{account: account{path: "/"}, allowed: true, check: lab.Between(5*second+10, 5*second+11)})
		}},
		{"one more in a window of the cut", "a client was granted 51 in one of the windows of 2s over all regions that hold a moment of the cut", func(r *seenRun) {
			r.answers(2, answer{account: account{"/", 1}, allowed: true, check: lab.Between(25*second+10, 25*second+11)})
		}},
		{"a region without its usable units", "used: ", func(r *seenRun) { r.lose(0, 3*second, 6*second) }},
		{"a region to which nothing moves", "moved: ", func(r *seenRun) { r.lose(1, 11*second, 15*second) }},
		{"lent units do not come back", "returned: ", func(r *seenRun) { r.lose(2, 29*second, 31*second) }},
		{"regions that do not find each other again", "healed: ", func(r *seenRun) { r.lose(0, 33*second, 36*second) }},
		{"checks that wait for another region", "p99: 110ms", func(r *seenRun) {
			r.checks(200, "/", 110*time.Millisecond)
		}},
		{"more than a region's own limit", "a client was granted 6 in one of the windows of 2s of one region by a Regional limit: at most 5 are allowed", func(r *seenRun) {
			for i := range int64(6) {
				r.answers(1, answer{account: account{path: localPath}, allowed: true, check: lab.Between(i, i+1)})
			}
		}},
		{"an error", "errors: 1", func(r *seenRun) { r.answers(0, answer{err: errors.New("refused")}) }},
		{"a stall", "stalls: 1", func(r *seenRun) {
			r.answers(0, answer{account: account{path: "/"}, done: int64(planetStall + time.Millisecond), check: lab.Between(1, 2)})
		}},
		{"no request", "requests: 0", func(r *seenRun) {
			r.tally = newTally(r.fleet, planetStall, r.tally.delay)
		}},
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

// lose removes the grants of a region between two times.
func (r *seenRun) lose(region int, from, to int64) {
	for i := range r.tally.answers {
		if a := &r.tally.answers[i]; r.region(a.to.gateway) == region && a.check.To >= from && a.check.To < to {
			a.allowed = false
		}
	}
}

func TestMachinePausesDoNotCountAsWaits(t *testing.T) {
	r := newSeenRun()
	r.tally.delay.Add(lab.Between(0, int64(time.Second)))
	r.checks(200, "/", 110*time.Millisecond)
	require.Empty(t, r.judge().failures())
}

func TestRegionalChecksShowWaitsOfTheMachine(t *testing.T) {
	r := newSeenRun()
	calm := sum(r.tally.answers, func(a *answer) bool {
		return !near([]span{lab.Between(r.happened[3].from, r.happened[4].from)}, a.check)
	}).answered()
	part := func(path string, calm, late int) { // late is the number of late checks of a thousand
		r.checks(calm*late/1000, path, 110*time.Millisecond)
		r.checks(calm*(1000-late)/1000, path, time.Millisecond)
	}
	part(localPath, calm, 20)
	r.checks(calm*29/1000, "/", 110*time.Millisecond)
	require.Empty(t, r.judge().failures())
	r.checks(calm*4/1000, "/", 110*time.Millisecond)
	require.Len(t, r.judge().failures(), 1)
}

func TestWindowWithTimeoutHasSeparateBound(t *testing.T) {
	r := newSeenRun()
	at := int64(5 * time.Second)
	r.answers(2, answer{account: account{path: "/"}, check: lab.Between(at+10, at+11), at: budget, allowed: true})
	require.Empty(t, r.judge().failures())
}

func TestInterruptedRunIsJudgedByItsAnswers(t *testing.T) {
	r := newSeenRun()
	r.happened, r.over = r.happened[:1], int64(time.Second)
	require.Empty(t, r.judge().failures())
}

func TestRegionsTableFitsTerminal(t *testing.T) {
	r := newSeenRun()
	r.coming, r.away[r.each] = []step{r.happened[3].step}, true
	v := r.view(time.Unix(0, r.over))
	for _, l := range drawn(v, 79, 60) {
		require.LessOrEqual(t, utf8.RuneCountInString(l), 79)
	}
	text := strings.Join(drawn(v, 79, 60), "\n")
	require.Contains(t, strings.Join(strings.Fields(text), " "), "next: cut: us, which has nearly all units, is cut off from eu and ap; demand is in all regions again")
	require.Regexp(t, `us .* 34 of 100 cut off\n`, text)
	require.Contains(t, text, " 0s ")
}
