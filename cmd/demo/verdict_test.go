package main

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// scene is a fleet and a tally of which nothing runs.
func scene() (*fleet, *tally) {
	f := newFleet(3, 10, time.Second, 1, nil)
	for i := range f.current {
		inc := &incarnation{gateway: i, condition: up}
		inc.report.Name = label(i) + "-0"
		f.current[i] = inc
		f.all = append(f.all, inc)
	}
	return f, newTally(f)
}

// admits adds answers that admit one client at a moment.
func (t *tally) admits(units int, source, owner string, at int64) {
	for range units {
		t.add(answer{
			to: t.fleet.current[0], sent: at, done: at + 2, took: time.Millisecond,
			check: span{at, at + 1}, source: source, owner: owner, allowed: true,
		})
	}
}

const second = int64(time.Second)

func TestVerdict(t *testing.T) {
	kill2 := happening{fault: fault{kind: kill, gateway: 1}, span: span{10 * second, 10 * second}}
	start2 := happening{fault: fault{kind: start, gateway: 1}, span: span{20 * second, 20*second + second/10}}
	for name, c := range map[string]struct {
		happens func(*fleet, *tally)
		broken  string // none if empty
	}{
		"a limit is a limit": {func(f *fleet, t *tally) { t.admits(10, "owner", "", second) }, ""},
		"one more is broken": {func(f *fleet, t *tally) { t.admits(11, "owner", "", second) }, "got 11 in 1s while all was well"},
		"two limits around a kill": {func(f *fleet, t *tally) {
			f.happened = []happening{kill2}
			t.admits(20, "owner", "", 10*second)
		}, ""},
		"and not one more": {func(f *fleet, t *tally) {
			f.happened = []happening{kill2}
			t.admits(21, "owner", "", 10*second)
		}, "got 21 in 1s around a fault"},
		"long after a kill all is well again": {func(f *fleet, t *tally) {
			f.happened = []happening{kill2}
			t.admits(11, "owner", "", 12*second)
		}, "while all was well"},
		"a check that timed out though its owner was up excuses a second limit": {func(f *fleet, t *tally) {
			t.admits(10, "forwarded", "gateway-2-0", second)
			t.admits(10, "budget", "gateway-2-0", second+5)
		}, ""},
		"in the windows that hold it": {func(f *fleet, t *tally) {
			t.admits(1, "budget", "gateway-2-0", second)
			t.admits(11, "forwarded", "gateway-2-0", 3*second)
		}, "while all was well"},
		"and no third": {func(f *fleet, t *tally) {
			t.admits(20, "forwarded", "gateway-2-0", second)
			t.admits(1, "budget", "gateway-2-0", second+5)
		}, "around a fault"},
		"a share that is spent while its owner is gone excuses nothing": {func(f *fleet, t *tally) {
			f.all[1].down = []span{{0, never}}
			t.admits(10, "forwarded", "gateway-3-0", second)
			t.admits(1, "budget", "gateway-2-0", second+5)
		}, "while all was well"},
		"a change of owners and a timeout are two faults": {func(f *fleet, t *tally) {
			f.happened = []happening{start2}
			t.admits(20, "owner", "", 20*second)
			t.admits(10, "budget", "gateway-3-0", 20*second+5)
		}, ""},
		"not three": {func(f *fleet, t *tally) {
			f.happened = []happening{start2}
			t.admits(21, "owner", "", 20*second)
			t.admits(10, "budget", "gateway-3-0", 20*second+5)
		}, "around two faults"},
		"an error of a gateway that is up": {func(f *fleet, t *tally) {
			t.admits(1, "owner", "", second)
			t.add(answer{to: f.current[1], sent: second, done: 2 * second, err: errors.New("refused")})
		}, "saw errors, the first: refused"},
		"not of one that was killed meanwhile": {func(f *fleet, t *tally) {
			t.admits(1, "owner", "", second)
			f.all[1].down = []span{{second + 5, never}}
			t.add(answer{to: f.current[1], sent: second, done: 2 * second, err: errors.New("refused")})
		}, ""},
		"of one that had been thawed before": {func(f *fleet, t *tally) {
			t.admits(1, "owner", "", second)
			f.all[1].down = []span{{0, second - 1}}
			t.add(answer{to: f.current[1], sent: second, done: 2 * second, err: errors.New("refused")})
		}, "saw errors"},
		"a stall": {func(f *fleet, t *tally) {
			t.add(answer{to: f.current[1], took: stallBound + 1, source: "owner"})
		}, "took longer than"},
		"a request that was slow because the machine stood still": {func(f *fleet, t *tally) {
			t.pulse.still = []span{{second, 2 * second}}
			t.add(answer{to: f.current[1], sent: second, done: 2*second + 5, took: time.Second + 5, source: "owner"})
		}, ""},
		"one that was slow besides": {func(f *fleet, t *tally) {
			t.pulse.still = []span{{second, second + second/10}}
			t.add(answer{to: f.current[1], sent: second, done: 2 * second, took: time.Second, source: "owner"})
		}, "took longer than"},
		"a silent run":                 {func(f *fleet, t *tally) {}, "no request was answered"},
		"a gateway that never started": {func(f *fleet, t *tally) { t.admits(1, "owner", "", second); f.current[2].condition = starting }, "gateway 3 did not start"},
		"a roster that changes by itself": {func(f *fleet, t *tally) {
			t.admits(1, "owner", "", second)
			f.judging = true
			f.told(f.current[0], report{Name: "gateway-1-0", Members: []seen{{"gateway-2-0", weir.Serving}}})
		}, "nobody had started there"},
	} {
		t.Run(name, func(t *testing.T) {
			f, tally := scene()
			c.happens(f, tally)
			v := judge(f, tally)
			failures := strings.Join(v.failures(), "\n")
			var printed strings.Builder
			v.print(&printed, false)
			if c.broken == "" {
				require.Empty(t, failures)
				require.Contains(t, printed.String(), "Every promise held.")
				return
			}
			require.Contains(t, failures, c.broken)
			require.Contains(t, printed.String(), c.broken)
			require.NotContains(t, printed.String(), "Every promise held.")
		})
	}
}

func TestFaultsAreMoreThanOneWindowApart(t *testing.T) {
	for d := 8 * time.Second; d <= 10*time.Minute; d += 100 * time.Millisecond {
		per, before := window(d), time.Duration(0)
		faults := plan(3, d, rand.New(rand.NewPCG(uint64(d), 0)))
		for _, f := range faults {
			require.Greater(t, f.after-before, per, "%v", d)
			before = f.after
		}
		require.Greater(t, d-before, per, "%v", d)
		require.NotEqual(t, faults[0].gateway, faults[2].gateway)
	}
	require.Equal(t, 2*time.Second, window(26*time.Second))
}

func TestQuantilesAreAtMostOneStepTooHigh(t *testing.T) {
	var l latencies
	for i := range 10_000 {
		l.add(time.Duration(i+1) * 37 * time.Microsecond)
	}
	for _, q := range []float64{0.1, 0.5, 0.9, 0.99} {
		exact := time.Duration(q*10_000) * 37 * time.Microsecond
		require.InDelta(t, 1+1.0/64, float64(l.quantile(q))/float64(exact), 1.0/60, "%v", q)
	}
	require.Equal(t, 370*time.Millisecond, l.quantile(1))
	require.Zero(t, new(latencies).quantile(0.5))
	l.add(time.Duration(never))
	require.Equal(t, time.Duration(never), l.quantile(1))
}

// A fleet that never asks an owner would break no bound: its shares explain all.
func TestARunThatShowsNoHealthProvesNothing(t *testing.T) {
	well := verdict{limit: 30, requests: 2000, healthy: 30, timedOut: 20}
	require.Empty(t, well.failures())
	unseen := well
	unseen.healthy = 0
	require.Len(t, unseen.failures(), 1)
	outage := well
	outage.timedOut = 300
	require.Len(t, outage.failures(), 1)
}
