package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
)

// strained is a fleet whose gateways were busy for a second. Of 1,000 checks meanwhile authority
// decided all, and of 200 after that.
func strained() (*fleet, *tally) {
	f, t := scene()
	t.admits(1, own, "", second)
	f.load = &load{span: lab.Between(3*second, 5*second), over: 4 * second}
	for range 1000 {
		t.denies(asked, "", 3*second+second/2)
	}
	for i := range int64(200) {
		t.denies(own, "", 5*second+1+i)
	}
	return f, t
}

// strays has copies answer checks of which none is of a client that others ask for.
func (t *tally) strays(n int, at int64) {
	for range n {
		t.add(answer{to: t.fleet.current[0], path: "/", client: 1, sent: at, done: at + 2, check: lab.Between(at, at+1), at: stoodIn, owner: "gateway-2-0"})
	}
	slices.SortStableFunc(t.answers, func(a, b answer) int { return cmp.Compare(a.done, b.done) })
}

func TestBusyGatewaysAreJudged(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(*fleet, *tally)
		broken  string // none if empty
	}{
		"authority decides, and a limit is a limit": {func(*fleet, *tally) {}, ""},
		"copies decide a tenth":                     {func(_ *fleet, t *tally) { t.strays(111, 3*second+second/2) }, ""},
		"copies decide more":                        {func(_ *fleet, t *tally) { t.strays(125, 3*second+second/2) }, "busy: 88%, of 1,125 checks"},
		"other programs have more of the machine than they may": {func(f *fleet, t *tally) {
			t.strays(125, 3*second+second/2)
			f.load.others = mostByOthers + 1
		}, ""},
		"they have what they may": {func(f *fleet, t *tally) {
			t.strays(125, 3*second+second/2)
			f.load.others = mostByOthers
		}, "busy: 88%"},
		"they have more, and a request fails": {func(f *fleet, t *tally) {
			f.load.others = mostByOthers + 1
			t.add(answer{to: f.current[1], sent: 3 * second, done: 4 * second, err: errors.New("refused")})
		}, "errors: 1"},
		"a gateway is taken for gone":     {func(f *fleet, _ *tally) { f.load.lost++ }, "gone: 1, times"},
		"checks are exact in time":        {func(_ *fleet, t *tally) { t.strays(1, 5*second-1) }, ""},
		"checks are not exact in time":    {func(_ *fleet, t *tally) { t.strays(1, 5*second) }, "exact: 1s, after the load"},
		"they are, before one is late":    {func(_ *fleet, t *tally) { t.strays(1, 6*second) }, ""},
		"not so many in a row are so":     {func(_ *fleet, t *tally) { t.strays(1, 5*second+exactInARow-2) }, "exact: 1s, after the load"},
		"the machine stood still instead": {func(_ *fleet, t *tally) { t.strays(1, 5*second); t.stoodStill(lab.Between(4*second, 5*second)) }, ""},
		"a client's check that timed out excuses a second limit, until all that was late has settled": {func(_ *fleet, t *tally) {
			t.denies(budget, "gateway-2-0", 3*second+5)
			t.admits(32, own, "", 5*second+second/10)
		}, ""},
		"and no third": {func(_ *fleet, t *tally) {
			t.denies(budget, "gateway-2-0", 3*second+5)
			t.admits(33, own, "", 5*second+second/10)
		}, "33 in one of the windows of 1s in which one was frozen or thawed, or a check timed out"},
		"nor a second limit before it": {func(_ *fleet, t *tally) {
			t.denies(budget, "gateway-2-0", 3*second+5)
			t.admits(17, own, "", 3*second)
		}, "17 in one of the windows of 1s in which all was well"},
		"a client of whom none timed out has its limit": {func(_ *fleet, t *tally) {
			t.admits(17, own, "", 3*second+5)
		}, "17 in one of the windows of 1s in which all was well"},
		"not all have told": {func(f *fleet, _ *tally) { f.load.running, f.load.lost = 1, 1 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f, tally := strained()
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
		})
	}
}

func TestOtherProgramsHaveWhatTheDemoAndIdleTimeLeave(t *testing.T) {
	require.Equal(t, 60, others(10*time.Second, 0, 4*time.Second))
	require.Equal(t, 36, others(10*time.Second, time.Second, 6*time.Second), "a tenth may be idle")
	require.Zero(t, others(10*time.Second, 2*time.Second, 0), "there was some to spare")
	require.Zero(t, others(10*time.Second, 0, 11*time.Second))
	require.Zero(t, others(0, 0, 0), "the system does not tell")
}

func TestWhatTakesLongWhileGatewaysAreBusyLoosensNoOtherPromise(t *testing.T) {
	f, tally := strained()
	values := func() map[string]string {
		all := make(map[string]string)
		for _, c := range (&monitor{fleet: f, tally: tally}).judge(0).claims {
			if !slices.Contains([]string{"requests", "busy", "p99, busy"}, c.name) {
				all[c.name] = c.value
			}
		}
		return all
	}
	usual := values()
	for range 1000 {
		tally.add(answer{to: f.current[0], path: "/", sent: 3 * second, done: 3*second + second/10, check: lab.Between(3*second, 3*second+second/10), at: asked})
	}
	for range 100 {
		tally.add(answer{to: f.current[0], path: "/", sent: 3 * second, done: 4 * second, check: lab.Between(3*second, 3*second+second/10), at: budget, owner: "gateway-2-0"})
	}
	require.Equal(t, usual, values(), "timeouts, latencies and all else are those of the other requests")
	f.happens(kill, 10*second, 10*second+second/10)
	tally.admits(18, own, "", 10*second+second/20)
	require.NotEmpty(t, (&monitor{fleet: f, tally: tally}).judge(0).failures(), "round trips of busy gateways grant no more around a crash")
	f.happened = nil

	tally.stoodStill(lab.Between(3*second, 4*second))
	require.Zero(t, (&monitor{fleet: f, tally: tally}).judge(0).still, "that is what the load is for")
	tally.lateness = new(lab.Lateness)
	was, now := f.load, time.Now().UnixNano()
	f.load = &load{span: lab.Between(now, never)}
	tally.miss(1)
	require.Zero(t, tally.missed)
	f.load = was
	tally.miss(1)
	require.Equal(t, 1, tally.missed)

	late := answer{to: f.current[0], path: "/", sent: 3 * second, done: 4 * second, check: lab.Between(3*second, 3*second+int64(stallBound)), at: own}
	tally.add(late)
	require.Zero(t, tally.standing().stalls, "the request waited, and not the check")
	late.check.To++
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
	require.Nil(t, f.load, "gateways are not busy")
	f.load = &load{span: lab.Between(second, never)}
	sees(weir.Unheard)
	sees(weir.Dead)
	require.Equal(t, 1, f.load.lost)
	sees(weir.Serving)
	sees(weir.Dead)
	require.Equal(t, 2, f.load.lost)
	sees(weir.Serving)
	f.current[1].condition = stopped
	sees(weir.Unheard)
	require.Equal(t, 2, f.load.lost, "it has been stopped")
}

func TestABusyGatewayWorksUntilItsTimeIsOver(t *testing.T) {
	until := time.Now().Add(50 * time.Millisecond)
	require.Positive(t, work(t.Context(), until.UnixNano()))
	require.False(t, time.Now().Before(until))
}

func TestABusyGatewayEndsAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	work(ctx, never)
}

func TestBusyIsOverOnceAllGatewaysHaveToldSo(t *testing.T) {
	f, _ := scene()
	f.happens(busy, second, never)
	f.load, f.unproven = &load{span: lab.Between(second, never), over: 2 * second, running: 2}, true
	f.told(f.current[0], report{Name: "gateway-1-0", At: 3 * second, Worked: time.Second})
	require.True(t, f.load.holds(lab.Between(3*second, 3*second)))
	require.True(t, f.unproven)
	f.told(f.current[1], report{Name: "gateway-2-0", At: 4 * second, Worked: time.Second})
	require.False(t, f.load.holds(lab.Between(4*second+1, 5*second)))
	require.False(t, f.unproven)
	require.Equal(t, 2*second, f.happened[0].from)
}
