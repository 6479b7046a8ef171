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
	t.admits(1, "owner", "", second)
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
			t.denies("budget", "gateway-2-0", 3*second+5)
			t.admits(32, "owner", "", 5*second+second/10)
		}, ""},
		"and not after that": {func(_ *fleet, t *tally, _ *strain) {
			t.denies("budget", "gateway-2-0", 3*second+5)
			t.admits(17, "owner", "", 6*second)
		}, "17 in one of the windows of 1s in which all was well"},
		"nor before it": {func(_ *fleet, t *tally, _ *strain) {
			t.denies("budget", "gateway-2-0", 4*second+5)
			t.admits(17, "owner", "", 3*second)
		}, "17 in one of the windows of 1s in which all was well"},
		"a client of whom none timed out has its limit": {func(_ *fleet, t *tally, _ *strain) {
			t.admits(17, "owner", "", 3*second+5)
		}, "17 in one of the windows of 1s in which all was well"},
		"not all have told": {func(f *fleet, _ *tally, s *strain) { f.straining, s.Granted[7] = 1, 16 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f, tally, s := strained()
			c.happens(f, tally, s)
			judged := judge(f, tally)
			v := judged.findings()
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
		})
	}
}

func TestWhatTakesLongWhileGatewaysAreBusyLoosensNoOtherPromise(t *testing.T) {
	f, tally, _ := strained()
	usual, took := tally.total.answered(), tally.total.took
	for range 1000 {
		tally.add(answer{
			to: f.current[0], sent: 3 * second, done: 4 * second, took: 100 * time.Millisecond,
			check: span{3 * second, 3*second + second/10}, source: "forwarded",
		})
	}
	for range 100 {
		tally.add(answer{to: f.current[0], sent: 3 * second, done: 4 * second, check: span{3 * second, 3*second + second/10}, source: "budget", owner: "gateway-2-0"})
	}
	after := judge(f, tally)
	require.Zero(t, tally.asked.Total, "a crash would be granted more")
	require.Zero(t, after.timedOut, "they have a row of their own")
	require.Equal(t, usual, tally.total.answered(), "timeouts are a part of those")
	require.Equal(t, 1100, tally.strained.answered())
	require.Equal(t, took, tally.total.took)

	tally.stoodStill(span{3 * second, 4 * second})
	require.Zero(t, judge(f, tally).still, "that is what the load is for")
	tally.lateness = lab.Lateness{}
	now := time.Now().UnixNano()
	f.busy = append(f.busy, span{now, never})
	tally.miss(1)
	require.Zero(t, tally.missed)
	f.busy = f.busy[:1]
	tally.miss(1)
	require.Equal(t, 1, tally.missed)

	late := answer{to: f.current[0], sent: 3 * second, done: 4 * second, took: time.Second, check: span{3 * second, 3*second + int64(stallBound)}, source: "owner"}
	tally.add(late)
	require.Zero(t, tally.stalls(), "the request waited, and not the check")
	late.check.to++
	tally.add(late)
	require.Equal(t, 1, tally.stalls())
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

func TestOrdersAreTakenUntilTheInputEnds(t *testing.T) {
	orders, loads := make(chan order, 2), make(chan order, 1)
	orders <- order{Busy: 7}
	orders <- order{Busy: 8}
	close(orders)
	obey(orders, loads, nil)
	require.Equal(t, order{Busy: 7}, <-loads)
	require.Empty(t, loads, "one that comes before the last was taken is left out")
}
