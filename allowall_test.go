package weir

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/internal/wire"
)

func TestAllowAllAllocatesOnlyDecisions(t *testing.T) {
	if testenv.Race {
		t.Skip("under the race detector a pool forgets at random")
	}
	n := solo(t, Config{Logger: quiet})
	var asks []Ask
	for i, calendar := range []Calendar{NoCalendar, Day, NoCalendar} {
		l := Limit{Name: fmt.Sprint(i), Algorithm: FixedWindow, Rate: 1_000_000, Calendar: calendar}
		if calendar == NoCalendar {
			l.Per = time.Hour
		}
		limiter, err := n.Limiter(l)
		require.NoError(t, err)
		asks = append(asks, Ask{Limiter: limiter, Key: "k", Shadow: i == 2})
	}
	ctx, ds := t.Context(), make(Decisions, 3)
	require.Zero(t, testing.AllocsPerRun(1000, func() { ds, _ = n.AllowAllInto(ctx, asks, ds) }))
	require.True(t, ds.Allowed())
	require.EqualValues(t, 1, testing.AllocsPerRun(1000, func() { ds, _ = n.AllowAll(ctx, asks...) }))
}

func TestShadowsDenyNothingDuringOutage(t *testing.T) {
	n := solo(t, Config{Expect: 3, Now: newHand().Now})
	closed := limiter(t, n, Limit{Name: "closed", Rate: 9, Per: time.Minute, Partition: FailClosed})
	open := limiter(t, n, Limit{Name: "open", Rate: 9, Per: time.Minute, Partition: FailOpen})
	ds, err := n.AllowAll(t.Context(), Ask{Limiter: closed, Key: "k", Shadow: true}, Ask{Limiter: open, Key: "k"})
	require.NoError(t, err)
	require.True(t, ds.Allowed())
	require.False(t, ds[0].Allowed)
	require.Equal(t, FailedClosed, ds[0].Source)
	require.EqualValues(t, 8, remaining(t, open, "k"))
	ds, err = n.AllowAll(t.Context(), Ask{Limiter: closed, Key: "k"}, Ask{Limiter: open, Key: "k", Shadow: true})
	require.NoError(t, err)
	require.False(t, ds.Allowed())
	require.EqualValues(t, 8, remaining(t, open, "k"))
}

func TestAllowAllIntoUsesGivenCapacity(t *testing.T) {
	n := solo(t, Config{})
	var asks []Ask
	for i := range 3 {
		asks = append(asks, Ask{Limiter: limiter(t, n, Limit{Name: fmt.Sprint(i), Rate: 1_000_000, Per: time.Hour}), Key: "k"})
	}
	room := make(Decisions, 5)
	room[4].Name = "not its own"
	ds, err := n.AllowAllInto(t.Context(), asks, room[:0])
	require.NoError(t, err)
	require.Len(t, ds, 3)
	require.Same(t, &room[0], &ds[0])
	require.Equal(t, "not its own", room[4].Name)
	ds, err = n.AllowAllInto(t.Context(), []Ask{{Limiter: asks[0].Limiter, Units: -1}}, ds)
	require.ErrorIs(t, err, ErrInvalid)
	require.False(t, ds.Allowed(), "after an error, the earlier Decisions in the slice are cleared")
}

func TestRefundOfLateAnswerHasGrantedUnits(t *testing.T) {
	n := solo(t, Config{})
	a := wire.Ask{Limit: &bucket.Limit{Rate: 10, Per: time.Hour}, Units: 7, AtMost: true}
	for _, granted := range []int64{3, 0} {
		r := wire.Result{Result: bucket.Result{Allowed: true, Receipt: 7}, Source: wire.Owner, Granted: granted}
		var to recordingPeer
		n.checks.HandleLate(&to, a.Append(wire.Header{Op: wire.OpTake, Asks: 1}.Append(nil)), r.Append(wire.OpTake, wire.AppendResponse(nil, wire.Done, 1)))
		refund, err := wire.ParseAsk(to.requests[0], 0, new(bucket.Limit))
		require.NoError(t, err)
		require.Equal(t, cmp.Or(granted, a.Units), refund.Units)
	}
}

func TestRefundOfLateAnswerIncludesShadows(t *testing.T) {
	n := solo(t, Config{})
	limit := bucket.Limit{Rate: 10, Per: time.Hour}
	late := func(enforced bool) (units []int64) {
		request := wire.Header{Op: wire.OpTake, Asks: 3, Hops: wire.MaxHops}.Append(nil)
		answer := wire.AppendResponse(nil, wire.Done, 3)
		for i, allowed := range []bool{enforced, false, true} {
			a := wire.Ask{ID: bucket.ID{Hi: uint64(i)}, Limit: &limit, Units: int64(i + 1), Shadow: i > 0}
			request = a.Append(request)
			r := wire.Result{Result: bucket.Result{Allowed: allowed, Receipt: bucket.Receipt(i + 7)}, Source: wire.Owner, StoodIn: i > 0, ResetNumber: uint64(i + 1)}
			answer = r.Append(wire.OpTake, answer)
		}
		var to recordingPeer
		n.checks.HandleLate(&to, request, answer)
		for _, refund := range to.requests {
			h, err := wire.ParseHeader(refund)
			require.NoError(t, err)
			require.Equal(t, wire.OpRefund, h.Op)
			for i := range int(h.Asks) {
				a, err := wire.ParseAsk(refund, i, new(bucket.Limit))
				require.NoError(t, err)
				require.EqualValues(t, a.Units+6, a.Spent.Receipt)
				require.Equal(t, a.Units > 1, a.Spent.StoodIn, "a refund states whether its units were granted without authority")
				units = append(units, a.Units)
			}
		}
		return units
	}
	require.Equal(t, []int64{1, 3}, late(true))
	require.EqualValues(t, 4, n.Stats().LateUnits)
	require.Empty(t, late(false), "a denied AllowAll has spent no units")
}
