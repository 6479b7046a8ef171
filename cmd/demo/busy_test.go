package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
)

// strained is a fleet whose gateways were busy for a second, and got of each key all
// that its limit grants, by who has authority.
func strained() (*fleet, *tally, *strain) {
	f, t := scene()
	t.admits(1, own, "", second)
	s := &strain{Over: 4 * second, Exact: 4*second + second/2}
	for key := range busyKeys {
		s.Asked[key], s.Granted[key] = 10, int(busyLimit.Rate)
	}
	s.At[own], s.At[asked] = 3*busyKeys, 7*busyKeys
	for range 10 * busyKeys {
		s.Took.Add(time.Millisecond)
	}
	f.strained, f.busy = s, []span{{3 * second, 5 * second}}
	return f, t, s
}

func TestBusyGatewaysAreJudged(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(*fleet, *tally, *strain)
		broken  string // none if empty
	}{
		"authority decides, and a limit is a limit": {func(*fleet, *tally, *strain) {}, ""},
		"one more is broken":                        {func(_ *fleet, _ *tally, s *strain) { s.Granted[7]++ }, "a key got 6 of 5"},
		"a check that timed out excuses a second limit of its key": {func(_ *fleet, _ *tally, s *strain) {
			s.Elsewhere[7], s.Granted[7] = 1, 10
		}, ""},
		"and no third": {func(_ *fleet, _ *tally, s *strain) { s.Elsewhere[7], s.Granted[7] = 3, 11 }, "a key got 11 of 10"},
		"nor one of another key": {func(_ *fleet, _ *tally, s *strain) {
			s.Elsewhere[7], s.Granted[8] = 1, 6
		}, "a key got 6 of 5"},
		"copies and shares decide most": {func(_ *fleet, _ *tally, s *strain) {
			s.At = [places]int{own: busyKeys, asked: 3 * busyKeys, stoodIn: 4 * busyKeys, budget: 2 * busyKeys}
		}, "busy: 40%, of 10,000 checks"},
		"other programs have most of the machine": {func(_ *fleet, _ *tally, s *strain) {
			s.At = [places]int{own: busyKeys, asked: 3 * busyKeys, stoodIn: 4 * busyKeys, budget: 2 * busyKeys}
			s.Cores = coreTime{Told: 3, Used: 30 * time.Second, Own: 4 * time.Second} // 10 s, of which the demo had 4
		}, ""},
		"they have less than half of it": {func(_ *fleet, _ *tally, s *strain) {
			s.At = [places]int{own: busyKeys, asked: 3 * busyKeys, stoodIn: 4 * busyKeys, budget: 2 * busyKeys}
			s.Cores = coreTime{Told: 3, Used: 30 * time.Second, Own: 6 * time.Second}
		}, "busy: 40%"},
		"they have most of it, and some is idle": {func(_ *fleet, _ *tally, s *strain) {
			s.At = [places]int{own: busyKeys, asked: 3 * busyKeys, stoodIn: 4 * busyKeys, budget: 2 * busyKeys}
			s.Cores = coreTime{Told: 3, Used: 30 * time.Second, Idle: 5 * time.Second, Own: time.Second}
		}, "busy: 40%"},
		"they have most of it, and a check fails": {func(_ *fleet, _ *tally, s *strain) {
			s.Errors, s.Cores = 1, coreTime{Told: 3, Used: 30 * time.Second, Own: time.Second}
		}, "1 failed"},
		"a check fails":                {func(_ *fleet, _ *tally, s *strain) { s.Errors++ }, "1 failed"},
		"a gateway is taken for gone":  {func(f *fleet, _ *tally, _ *strain) { f.lost++ }, "gone: 1, times"},
		"checks are not exact in time": {func(_ *fleet, _ *tally, s *strain) { s.Exact += second }, "exact: 1.5 s, after the load"},
		"checks are not exact at all":  {func(_ *fleet, _ *tally, s *strain) { s.Exact = never }, "exact: –, after the load"},
		"the machine stood still instead": {func(_ *fleet, t *tally, s *strain) {
			s.Exact += second
			t.stoodStill(span{s.Over, s.Over + second})
		}, ""},
		"a client's check that timed out excuses a second limit, until all that was late has settled": {func(_ *fleet, t *tally, _ *strain) {
			t.denies(budget, "gateway-2-0", 3*second+5)
			t.admits(32, own, "", 5*second+second/10)
		}, ""},
		"and not after that": {func(_ *fleet, t *tally, _ *strain) {
			t.denies(budget, "gateway-2-0", 3*second+5)
			t.admits(17, own, "", 6*second)
		}, "17 in one of the windows of 1s in which all was well"},
		"nor before it": {func(_ *fleet, t *tally, _ *strain) {
			t.denies(budget, "gateway-2-0", 4*second+5)
			t.admits(17, own, "", 3*second)
		}, "17 in one of the windows of 1s in which all was well"},
		"a client of whom none timed out has its limit": {func(_ *fleet, t *tally, _ *strain) {
			t.admits(17, own, "", 3*second+5)
		}, "17 in one of the windows of 1s in which all was well"},
		"not all have told": {func(f *fleet, _ *tally, s *strain) { f.straining, s.Granted[7] = 1, 16 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f, tally, s := strained()
			c.happens(f, tally, s)
			v := (&monitor{fleet: f, tally: tally}).judge(0)
			failures, said := strings.Join(v.failures(), "\n"), printed(v, 1000)
			if c.broken == "" {
				require.Empty(t, failures)
				require.Contains(t, said, "Every promise held.")
				return
			}
			require.Contains(t, failures, c.broken)
			require.Contains(t, said, c.broken)
		})
	}
}

func TestWhatTakesLongWhileGatewaysAreBusyLoosensNoOtherPromise(t *testing.T) {
	f, tally, _ := strained()
	values := func() map[string]string {
		all := make(map[string]string)
		for _, c := range (&monitor{fleet: f, tally: tally}).judge(0).claims {
			if c.name != "requests" && c.name != "p99, busy" {
				all[c.name] = c.value
			}
		}
		return all
	}
	before := values()
	for range 1000 {
		tally.add(answer{to: f.current[0], path: "/", sent: 3 * second, done: 3*second + second/10, check: span{3 * second, 3*second + second/10}, at: asked})
	}
	for range 100 {
		tally.add(answer{to: f.current[0], path: "/", sent: 3 * second, done: 4 * second, check: span{3 * second, 3*second + second/10}, at: budget, owner: "gateway-2-0"})
	}
	require.Equal(t, before, values(), "timeouts, latencies and all else are those of the other requests")
	f.happens(kill, 10*second, 10*second+second/10)
	tally.admits(18, own, "", 10*second+second/20)
	require.NotEmpty(t, (&monitor{fleet: f, tally: tally}).judge(0).failures(), "round trips of busy gateways grant no more around a crash")
	f.happened = nil

	tally.stoodStill(span{3 * second, 4 * second})
	require.Zero(t, (&monitor{fleet: f, tally: tally}).judge(0).still, "that is what the load is for")
	tally.lateness = new(lab.Lateness)
	now := time.Now().UnixNano()
	f.busy = append(f.busy, span{now, never})
	tally.miss(1)
	require.Zero(t, tally.missed)
	f.busy = f.busy[:1]
	tally.miss(1)
	require.Equal(t, 1, tally.missed)

	late := answer{to: f.current[0], path: "/", sent: 3 * second, done: 4 * second, check: span{3 * second, 3*second + int64(stallBound)}, at: own}
	tally.add(late)
	require.Zero(t, tally.standing().stalls, "the request waited, and not the check")
	late.check.to++
	tally.add(late)
	require.Equal(t, 1, tally.standing().stalls)
}

func TestAGatewayTakenForGoneWhileItIsUpIsNotedOnce(t *testing.T) {
	f, _ := scene()
	sees := func(state weir.MemberState) {
		f.told(f.current[0], report{Name: "gateway-1-0", At: second, Members: []seen{{"gateway-1-0", weir.Serving}, {"gateway-2-0", state}, {"gateway-3-0", weir.Serving}}})
	}
	sees(weir.Serving)
	sees(weir.Unheard)
	sees(weir.Serving)
	require.Zero(t, f.lost, "gateways are not busy")
	f.busy = []span{{second, never}}
	sees(weir.Unheard)
	sees(weir.Dead)
	require.Equal(t, 1, f.lost)
	sees(weir.Serving)
	sees(weir.Dead)
	require.Equal(t, 2, f.lost)
	sees(weir.Serving)
	f.current[1].condition = stopped
	sees(weir.Unheard)
	require.Equal(t, 2, f.lost, "it has been stopped")
}

func TestABusyGatewayChecksUntilItsTimeIsOverAndThenUntilAllIsExact(t *testing.T) {
	node, err := weir.Start(t.Context(), weir.Config{})
	require.NoError(t, err)
	defer node.Close()
	l, err := node.Limiter(busyLimit)
	require.NoError(t, err)
	var s *strain
	var until int64
	for last := 50 * time.Millisecond; s == nil || s.Took.Total == 0; last *= 2 { // on a busy machine it may not get to a check
		until = time.Now().Add(last).UnixNano()
		s = endure(t.Context(), l, until)
	}
	require.Equal(t, until, s.Over)
	require.Greater(t, s.Exact, until)
	require.NotEqual(t, int64(never), s.Exact)
	require.Equal(t, s.Took.Total, s.At[own])
	_, _, _, beyond := s.sums()
	require.Negative(t, beyond)

	text, err := json.Marshal(report{Strain: s})
	require.NoError(t, err)
	var told report
	require.NoError(t, json.Unmarshal(text, &told))
	require.Equal(t, s, told.Strain, "the demo is told all of it")
}

func TestABusyGatewayEndsAtOnce(t *testing.T) {
	node, err := weir.Start(t.Context(), weir.Config{})
	require.NoError(t, err)
	defer node.Close()
	l, err := node.Limiter(busyLimit)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Zero(t, endure(ctx, l, never).Took.Total)
}
