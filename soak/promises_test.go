package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
)

// every is so many admissions, so far apart, from a moment on; each takes a
// millisecond.
func every(gap time.Duration, from time.Duration, n int) (spans []span) {
	for i := range n {
		at := int64(from) + int64(i)*int64(gap)
		spans = append(spans, lab.Between(at, at+int64(time.Millisecond)))
	}
	return spans
}

func judged(a *account, l weir.Limit, faults ...fault) (found [kinds]lab.Fullest) {
	a.audit("log 1", l, faults, 10*time.Millisecond, &found)
	return found
}

func broken(found [kinds]lab.Fullest) (all []kind) {
	for k, f := range found {
		if f.Held > f.Most {
			all = append(all, kind(k))
		}
	}
	return all
}

var ten = weir.Limit{Name: "log", Algorithm: weir.SlidingLog, Rate: 10, Per: time.Second}

func TestAUnitTooManyIsRefusedWhereNothingWasDone(t *testing.T) {
	right := &account{Admitted: every(101*time.Millisecond, time.Minute, 100)}
	require.Empty(t, broken(judged(right, ten)))

	wrong := &account{Admitted: every(90*time.Millisecond, time.Minute, 100)}
	found := judged(wrong, ten)
	require.Equal(t, []kind{calm}, broken(found))
	require.Equal(t, lab.Fullest{Windows: 100, Held: 12, Most: 10, Of: "log 1"}, found[calm])

	v := verdict{filled: 100}
	v.judge(limits(5, 300), map[string]*account{"log 1": {Admitted: every(40*time.Millisecond, time.Minute, 100)}}, nil, nil)
	require.Contains(t, v.broken()[0], `key "log 1" was admitted 25 in a window of kind "calm": 20 at most`)
}

func TestWhatAFaultMayCostIsAllowedAndNoMore(t *testing.T) {
	hundred := weir.Limit{Name: "log", Algorithm: weir.SlidingLog, Rate: 100, Per: time.Hour}
	struck := lab.Between(int64(time.Minute), int64(time.Minute+time.Second))
	for _, test := range []struct {
		kind kind
		most int // in an hour
	}{
		{reload, 100}, // the limit
		{deploy, 102}, // a unit, and a round trip's
		{kill, 106},   // a sixteenth
		{freeze, 200}, // 2·L
		{sever, 449},  // below 1.5·(1+2)·L
	} {
		t.Run(test.kind.String(), func(t *testing.T) {
			spread := func(n int) *account { // half the limit before, the rest from a second after on
				return &account{Admitted: append(every(time.Millisecond, time.Second, 50), every(time.Millisecond, time.Minute+time.Second, n-50)...)}
			}
			require.Empty(t, broken(judged(spread(test.most), hundred, fault{kind: test.kind, span: struck})))
			require.Equal(t, []kind{test.kind}, broken(judged(spread(test.most+1), hundred, fault{kind: test.kind, span: struck})))
		})
	}
}

func TestWhatWasInFlightAroundAKillCountsOnlyThere(t *testing.T) {
	hundred := weir.Limit{Name: "log", Algorithm: weir.SlidingLog, Rate: 100, Per: time.Hour}
	killed := fault{kind: kill, span: lab.Between(int64(time.Minute), int64(time.Minute+time.Second))}
	around := every(time.Millisecond, time.Minute-5*time.Millisecond, 5)
	for far, want := range map[int][]kind{56: nil, 57: {kill}} { // 5 were in flight, and 106 are allowed besides
		a := &account{Admitted: append(every(time.Millisecond, time.Second, 50), around...)}
		a.Admitted = append(a.Admitted, every(time.Millisecond, time.Minute+time.Second, far)...)
		require.Equal(t, want, broken(judged(a, hundred, killed)))
	}
}

func TestAFaultThatIsLongOverAllowsNothing(t *testing.T) {
	frozen := fault{kind: freeze, span: lab.Between(int64(time.Minute), int64(time.Minute+time.Second))}
	burst := &account{Admitted: every(time.Millisecond, time.Minute+time.Second+aftermath+time.Millisecond, 11)}
	require.Equal(t, []kind{calm}, broken(judged(burst, ten, frozen)))
	burst = &account{Admitted: every(time.Millisecond, time.Minute+time.Second+aftermath-20*time.Millisecond, 11)}
	require.Empty(t, broken(judged(burst, ten, frozen)))
}

func TestAStandInAllowsOneMoreLimitOnlyWhereNoFaultOfItsOwnerCallsForOne(t *testing.T) {
	spans := every(time.Millisecond, time.Minute, 20)
	require.Empty(t, broken(judged(&account{Admitted: spans, Alone: []stoodIn{{spans[10], 3}}}, ten)))
	spans = every(time.Millisecond, time.Minute+100*time.Millisecond, 20)
	for owner, want := range map[int64][]kind{3: {kill}, 2: nil} {
		killed := fault{kind: kill, span: lab.Between(int64(time.Minute), int64(time.Minute+time.Second)), node: 3}
		require.Equal(t, want, broken(judged(&account{Admitted: spans, Alone: []stoodIn{{spans[10], owner}}}, ten, killed)))
	}
}

func TestARoundTripIsAsLongAsChecksTookBeforeAKill(t *testing.T) {
	accounts := map[string]*account{"log 1": {Admitted: append(every(time.Second, time.Second, 200), lab.Between(int64(time.Minute-500*time.Millisecond), int64(time.Minute-100*time.Millisecond)))}}
	faults := []fault{{kind: kill, span: lab.Between(int64(time.Minute), int64(time.Minute+time.Second))}, {kind: kill, span: lab.Between(int64(2*time.Minute), int64(3*time.Minute))}}
	new(verdict).judge(limits(5, 300), accounts, faults, nil)
	require.Equal(t, 400*time.Millisecond, faults[0].rtt)
	require.Equal(t, time.Millisecond, faults[1].rtt)
}

func TestARunThatShowedNothingOrDeniedForNoReasonIsBroken(t *testing.T) {
	v := verdict{filled: -1}
	require.Len(t, v.broken(), 2, "neither a window nor a busy key")

	v = verdict{}
	asked := []span{lab.Between(int64(time.Minute), int64(2*time.Minute))}
	v.judge(limits(5, 300), map[string]*account{"log 1": {Admitted: every(100*time.Millisecond, time.Minute, 600)}}, nil, asked)
	require.Equal(t, int64(50), v.filled)
	require.Len(t, v.broken(), 1)

	v.judge(limits(5, 300), map[string]*account{"log 1": {Admitted: every(50*time.Millisecond, time.Minute, 1200)}}, nil, asked)
	require.Equal(t, int64(100), v.filled)
	require.Empty(t, v.broken())

	v.total.Errors, v.total.Error = 1, "node 1: weir: closed"
	v.total.Slowest.Took = time.Second
	require.Len(t, v.broken(), 2)
}
