package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
)

// scene returns a fleet and a tally without processes.
func scene() (*fleet, *tally) {
	f := newFleet(options{nodes: 3, limit: 16}, time.Second, nil)
	for i := range f.nodes {
		inc := &incarnation{gateway: i, condition: up}
		inc.report.Name = label(i) + "-0"
		f.current[i] = inc
		f.all = append(f.all, inc)
	}
	return f, newTally(f, stallBound, new(lab.SchedulingDelay))
}

// happens records a step of a gateway that begins and is seen at these times.
func (f *fleet) happens(k kind, from, seenBy int64) {
	f.happened = append(f.happened, happening{step: step{kind: k, gateway: 1}, from: from, seenBy: seenBy})
}

// admits adds answers, at the same time, that admit units of the first client.
func (t *tally) admits(units int, by place, owner string, at int64) {
	for range units {
		t.add(answer{to: t.fleet.current[0], account: account{path: "/"}, sent: at, done: at + 2, check: lab.Between(at, at+1), at: by, owner: owner, allowed: true})
	}
}

// denies adds an answer that denies the first client.
func (t *tally) denies(by place, owner string, at int64) {
	t.add(answer{to: t.fleet.current[0], account: account{path: "/"}, sent: at, done: at + 2, check: lab.Between(at, at+1), at: by, owner: owner})
}

// roundTrips adds an answer of an owner over the network, with this duration.
func (t *tally) roundTrips(took time.Duration) {
	t.add(answer{to: t.fleet.current[0], account: account{path: "/"}, sent: 0, done: int64(took), check: lab.Between(0, int64(took)), at: asked})
}

// stoodStill records that the machine stood still.
func (t *tally) stoodStill(s span) { t.delay.Add(s) }

const second = int64(time.Second)

// strikes returns a function that adds a step of a gateway at 10 s and admissions at the time at
// to a scene. All gateways have seen the step after the time seenAfter.
func strikes(k kind, seenAfter int64, units int, at int64) func(*fleet, *tally) {
	return func(f *fleet, t *tally) {
		f.happens(k, 10*second, 10*second+seenAfter)
		t.admits(units, own, "", at)
	}
}

func TestVerdictReportsBrokenPromises(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(*fleet, *tally)
		broken  string // empty if no promise is broken
	}{
		"a limit is a limit": {func(f *fleet, t *tally) { t.admits(16, own, "", second) }, ""},
		"one admission above the limit breaks the promise": {func(f *fleet, t *tally) { t.admits(17, own, "", second) }, "a client was granted 17 in one of the windows of 1s without a fault"},
		"a deploy excuses nothing":                         {strikes(leave, second, 17, 10*second), "17 in one of the windows of 1s in which gateways started, or left in order"},
		"a start excuses nothing":                          {strikes(start, never-10*second, 17, 20*second), "in which gateways started"},
		"a reload of the rules excuses nothing":            {strikes(reload, second, 17, 10*second), "17 in one of the windows of 1s without a fault"},
		"a crash may cost a sixteenth":                     {strikes(kill, 5, 17, 10*second), ""},
		"a crash may not cost more than a sixteenth":       {strikes(kill, 5, 18, 10*second+1), "18 in one of the windows of 1s in which a gateway was killed: L + L/16"},
		"a crash excuses admissions within two round trips": {func(f *fleet, t *tally) {
			f.happens(kill, 10*second, 10*second+second/10)
			t.admits(14, own, "", 10*second+second/20)
			t.admits(6, own, "", 10*second+second/50)
			t.roundTrips(30 * time.Millisecond)
		}, ""},
		"round trips around a crash excuse no other admissions": {func(f *fleet, t *tally) {
			f.happens(kill, 10*second, 10*second+second/10)
			t.admits(18, own, "", 10*second+second/20)
			t.admits(6, own, "", 10*second+second/50)
			t.roundTrips(30 * time.Millisecond)
		}, "24 in one of the windows of 1s in which a gateway was killed: L + L/16"},
		"a window after a crash was seen has the limit": {func(f *fleet, t *tally) {
			f.happens(kill, 10*second, 10*second+5)
			t.admits(17, stoodIn, "gateway-2-0", 11*second+6)
			f.all[1].down = []span{lab.Between(0, never)}
		}, "windows of 1s without a fault"},
		"two limits around a freeze":                    {strikes(freeze, 5, 32, 10*second), ""},
		"not more than two limits around a freeze":      {strikes(thaw, 5, 33, 10*second), "in which a gateway was frozen or thawed"},
		"after a heal the counts have a moment to meet": {strikes(thaw, 5, 32, 10*second+second/10), ""},
		"a check that timed out though its owner was up excuses a second limit": {func(f *fleet, t *tally) {
			t.admits(16, asked, "gateway-2-0", second)
			t.admits(16, stoodIn, "gateway-2-0", second+5)
		}, ""},
		"a timed-out check excuses only windows that hold it": {func(f *fleet, t *tally) {
			t.admits(1, budget, "gateway-2-0", second)
			t.admits(17, asked, "gateway-2-0", 3*second)
		}, "windows of 1s without a fault"},
		"a timed-out check does not excuse a third limit": {func(f *fleet, t *tally) {
			t.admits(32, asked, "gateway-2-0", second)
			t.admits(1, budget, "gateway-2-0", second+5)
		}, "a check timed out"},
		"admissions of a stand-in for a dead owner excuse nothing": {func(f *fleet, t *tally) {
			f.all[1].down = []span{lab.Between(0, never)}
			t.admits(16, asked, "gateway-3-0", second)
			t.admits(1, stoodIn, "gateway-2-0", second+5)
		}, "windows of 1s without a fault"},
		"an admission by a share, although there was a stand-in, counts as a timeout": {func(f *fleet, t *tally) {
			f.all[1].down = []span{lab.Between(0, never)}
			t.admits(16, stoodIn, "gateway-2-0", second)
			t.admits(16, budget, "gateway-2-0", second+5)
		}, ""},
		"timeouts while running gateways are not connected": {func(f *fleet, t *tally) {
			t.admits(16, own, "gateway-2-0", 2*second-second/10)
			t.admits(16, stoodIn, "gateway-2-0", 2*second)
			t.denies(own, "gateway-2-0", 2*second+second/10)
		}, ""},
		"an error of a gateway that is up": {func(f *fleet, t *tally) {
			t.admits(1, own, "", second)
			t.add(answer{to: f.current[1], sent: second, done: 2 * second, err: errors.New("refused")})
		}, "errors: 1, from gateways that were up, the first: refused"},
		"an error of a gateway that was killed meanwhile": {func(f *fleet, t *tally) {
			t.admits(1, own, "", second)
			f.all[1].down = []span{lab.Between(second+5, never)}
			t.add(answer{to: f.current[1], sent: second, done: 2 * second, err: errors.New("refused")})
		}, ""},
		"an error of a gateway that was thawed before": {func(f *fleet, t *tally) {
			t.admits(1, own, "", second)
			f.all[1].down = []span{lab.Between(0, second-1)}
			t.add(answer{to: f.current[1], sent: second, done: 2 * second, err: errors.New("refused")})
		}, "errors: 1"},
		"a stall": {func(f *fleet, t *tally) {
			t.add(answer{to: f.current[1], done: int64(stallBound) + 1, at: own})
		}, "took longer than"},
		"a check that timed out in a stand-still excuses until late answers have settled": {func(f *fleet, t *tally) {
			f.all[1].still = []span{lab.Between(second, second+second/10), lab.Between(second+second/5, 2*second)}
			t.denies(budget, "gateway-2-0", second)
			t.admits(32, own, "", 2*second+int64(healed))
		}, ""},
		"no excuse after late answers have settled": {func(f *fleet, t *tally) {
			f.all[1].still = []span{lab.Between(second, second+second/10), lab.Between(second+second/5, 2*second)}
			t.denies(budget, "gateway-2-0", second)
			t.admits(17, own, "", 2*second+int64(healed)+1)
		}, "windows of 1s without a fault"},
		"no excuse without a stand-still of a gateway": {func(f *fleet, t *tally) {
			f.all[1].still = []span{lab.Between(second+2, 2*second)}
			t.admits(1, budget, "gateway-2-0", second)
			t.admits(17, own, "", 2*second)
		}, "windows of 1s without a fault"},
		"a request without an answer": {func(f *fleet, t *tally) {
			t.add(answer{to: f.current[1], sent: second, done: second + int64(giveUp), err: context.DeadlineExceeded})
		}, "took longer than"},
		"a request without an answer from a gateway that stood still": {func(f *fleet, t *tally) {
			t.admits(1, own, "", second)
			f.current[1].still = []span{lab.Between(second, second+int64(giveUp))}
			t.add(answer{to: f.current[1], sent: second, done: second + int64(giveUp), err: context.DeadlineExceeded})
		}, ""},
		"a request that was slow because the machine stood still": {func(f *fleet, t *tally) {
			t.stoodStill(lab.Between(second, 2*second))
			t.add(answer{to: f.current[1], sent: second, done: 2*second + 5, at: own})
		}, ""},
		"a request that was slow beyond a stand-still": {func(f *fleet, t *tally) {
			t.stoodStill(lab.Between(second, second+second/10))
			t.add(answer{to: f.current[1], sent: second, done: 2 * second, at: own})
		}, "took longer than"},
		"a request that was slow because its gateway stood still": {func(f *fleet, t *tally) {
			f.current[1].still = []span{lab.Between(second, second+second/2), lab.Between(second+second/2+10, 2*second)}
			t.add(answer{to: f.current[1], sent: second, done: 2*second + 5, at: own})
		}, ""},
		"a stand-still of another gateway is no excuse": {func(f *fleet, t *tally) {
			f.current[2].still = []span{lab.Between(second, 2*second)}
			t.add(answer{to: f.current[1], sent: second, done: 2*second + 5, at: own})
		}, "took longer than"},
		"a moment in which both the demo and the gateway stood still counts once": {func(f *fleet, t *tally) {
			t.stoodStill(lab.Between(second, second+4*second/10))
			f.current[1].still = []span{lab.Between(second, second+4*second/10)}
			t.add(answer{to: f.current[1], sent: second, done: 2 * second, at: own})
		}, "took longer than"},
		"a silent run":                 {func(f *fleet, t *tally) {}, "requests: 0, answered"},
		"a gateway that never started": {func(f *fleet, t *tally) { t.admits(1, own, "", second); f.current[2].condition = starting }, "gateway 3 did not start"},
	} {
		t.Run(name, func(t *testing.T) {
			f, tally := scene()
			c.happens(f, tally)
			v := (&monitor{fleet: f, tally: tally}).judge(0)
			failures, said := strings.Join(v.failures(), "\n"), printed(v, 1000)
			if c.broken == "" {
				require.Empty(t, failures)
				require.Contains(t, said, "Every promise held.")
				return
			}
			require.Contains(t, failures, c.broken)
			require.Contains(t, said, c.broken)
			require.NotContains(t, said, "Every promise held.")
		})
	}
}

// The number of stalls and the slowest request are a single judgment of the same answers.
func TestStallCountAgreesWithSlowestRequest(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		f, tally := scene()
		stalls, slowest := 0, time.Duration(0)
		for i := range 1 + random.IntN(4) {
			at := int64(10+10*i) * second
			took := stallBound + time.Duration(random.IntN(3)-1)*400*time.Microsecond
			still := time.Duration(random.IntN(2)) * time.Second
			if still > 0 && random.IntN(2) == 0 {
				tally.stoodStill(lab.Between(at, at+int64(still)))
			} else if still > 0 {
				f.current[1].still = append(f.current[1].still, lab.Between(at, at+int64(still)))
			}
			tally.add(answer{to: f.current[1], sent: at, done: at + int64(still+took), check: lab.Between(at, at+1), at: own})
			slowest = max(slowest, took)
			if took > stallBound {
				stalls++
			}
		}
		require.Equal(t, slowest, tally.slowest())
		require.Equal(t, stalls, tally.standing().stalls)
	}
	require.Equal(t, "501ms", shortUp(stallBound+time.Microsecond), "a stall does not look like the bound")
}

func TestStepsAreMoreThanOneWindowApart(t *testing.T) {
	t.Parallel()
	for d := 8 * time.Second; d <= 10*time.Minute; d += 100 * time.Millisecond {
		per, before := window(d), time.Duration(0)
		for _, s := range plan(3, d, rand.New(rand.NewPCG(uint64(d), 0))) {
			if s.after == 0 {
				continue // it continues a deploy
			}
			require.Greater(t, s.after-before, per, "%v", d)
			require.Greater(t, s.calm, per, "%v", d)
			before = s.after
		}
		require.Greater(t, d-before, per, "%v", d)
	}
	require.Equal(t, 2*time.Second, window(36*time.Second))
}

func TestPlanRestartsAllGateways(t *testing.T) {
	for seed := range uint64(100) {
		victims := map[kind]int{}
		happens := map[kind]int{}
		for _, s := range plan(3, 36*time.Second, rand.New(rand.NewPCG(seed, 0))) {
			victims[s.kind] = s.gateway
			happens[s.kind]++
		}
		require.NotEqual(t, victims[kill], victims[freeze])
		require.Equal(t, victims[kill], victims[start], "the last start replaces the killed gateway")
		require.Equal(t, victims[freeze], victims[thaw])
		require.Equal(t, map[kind]int{start: 5, leave: 4, kill: 1, freeze: 1, thaw: 1, reload: 1}, happens)
	}
}

func TestStepWaitsUntilPreviousStepWasSeen(t *testing.T) {
	f, _ := scene()
	at := func(ns int64) time.Time { return time.Unix(0, ns) }
	next := step{calm: time.Second}
	may := func(now int64) bool {
		ok, err := f.canHappen(next, at(now))
		require.NoError(t, err)
		return ok
	}
	require.True(t, may(0))
	f.happens(kill, 10*second, never)
	require.False(t, may(12*second))
	_, err := f.canHappen(next, at(10*second+int64(seenWithin)+1))
	require.ErrorContains(t, err, "kill gateway 2: not all gateways had seen it")
	f.happened[0].seenBy = 12 * second
	require.False(t, may(12*second))
	require.True(t, may(13*second))
}

func TestStepIsSettledWhenGatewaysAgreeOnMembers(t *testing.T) {
	f, _ := scene()
	f.happens(leave, second, never)
	f.current[1].condition = leaving
	sees := func(of int, members ...seen) {
		f.record(f.current[of], Report{Name: label(of) + "-0", At: 2 * second, Members: members})
	}
	one, two, three := seen{"gateway-1-0", weir.Serving}, seen{"gateway-2-0", weir.Serving}, seen{"gateway-3-0", weir.Serving}
	sees(0, one, three)
	sees(2, one, three)
	require.False(t, f.isSettled(), "the process has not ended")
	f.current[1].condition = gone
	sees(2, one, two, three)
	require.False(t, f.isSettled(), "other gateways still see the gateway")
	sees(2, one, three)
	require.True(t, f.isSettled())
	require.Equal(t, 2*second, f.happened[0].seenBy)

	f.happens(start, 3*second, never)
	f.place(1)
	sees(2, one, three)
	require.False(t, f.isSettled(), "the gateway starts")
}

func TestReloadIsSettledWhenAllGatewaysHaveRules(t *testing.T) {
	f, _ := scene()
	all := []seen{{"gateway-1-0", weir.Serving}, {"gateway-2-0", weir.Serving}, {"gateway-3-0", weir.Serving}}
	f.happens(reload, second, never)
	f.version = 2
	for of, version := range []uint64{2, 1, 2} {
		f.record(f.current[of], Report{Name: label(of) + "-0", At: 2 * second, Members: all, Rules: version})
	}
	require.False(t, f.isSettled(), "a gateway has old rules")
	f.record(f.current[1], Report{Name: label(1) + "-0", At: 2 * second, Members: all, Rules: 2})
	require.True(t, f.isSettled())
}

// A load balancer does not send requests to a gateway that is not ready.
func TestOnlyReadyGatewaysGetTraffic(t *testing.T) {
	f, _ := scene()
	picks := func() bool { return f.pick(rand.New(rand.NewPCG(1, 1))) != nil }
	for c, want := range map[condition]struct {
		picked bool
		then   condition
	}{
		joining: {true, up},
		up:      {true, up},
		leaving: {false, leaving},
		frozen:  {false, frozen}, // a late answer may have been sent before the freeze
		killed:  {false, killed},
	} {
		f.current[0].condition = c
		f.recordReadiness(f.current[0], true)
		require.Equal(t, want.picked, picks(), "%v", c)
		require.Equal(t, want.then, f.current[0].condition)
		f.recordReadiness(f.current[0], false)
		require.False(t, picks(), "%v", c)
	}
	f.current[0].condition = up
	f.recordReadiness(f.current[0], false)
	require.Equal(t, joining, f.current[0].condition, "a gateway that is no longer ready joins again")
}

// A fleet that never asks an owner would break no bound, because its shares explain all
// admissions.
func TestRunWithoutHealthyWindowFails(t *testing.T) {
	f, seen := scene()
	judge := func() []string { return (&monitor{fleet: f, tally: seen}).judge(0).failures() }
	seen.admits(16, own, "", second)
	for range 2000 {
		seen.denies(own, "", second)
	}
	for range 20 {
		seen.denies(budget, "gateway-2-0", second)
	}
	require.Empty(t, judge())
	f.happens(kill, 0, never)
	require.Len(t, judge(), 1)
	f.happened = nil
	for range 300 {
		seen.denies(budget, "gateway-2-0", second)
	}
	require.Len(t, judge(), 1)
}
