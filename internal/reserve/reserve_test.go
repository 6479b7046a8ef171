package reserve

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/epoch"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/sealed"
	"github.com/weir-go/weir/internal/wire"
)

// fake is a node that grants each marker once, and records the calls of DoInBackground.
type fake struct {
	*Reservations
	env.Checks
	source  wire.Source // source of its denials
	err     error
	markers map[bucket.ID]bool
	calls   []call
	shared  func(*wire.Ask) bucket.Result // decides instead of markers, if set
}

type call struct {
	op    wire.Op
	units int64
}

func newFake(region string, secrets ...[]byte) *fake {
	f := &fake{markers: make(map[bucket.ID]bool)}
	f.Reservations = New(Config{
		Clock: env.NewClock(nil), Run: epoch.New(0), Identity: identity.New(nil), Region: region, Box: sealed.New(secrets), Checks: f,
	})
	return f
}

func (f *fake) Do(_ context.Context, _ wire.Op, a *wire.Ask, r *wire.Result) error {
	if f.shared != nil {
		r.Result = f.shared(a)
		return nil
	}
	r.Allowed, r.Source = f.source == 0 && !f.markers[a.ID], f.source
	f.markers[a.ID] = f.source == 0
	return f.err
}

func (f *fake) DoInBackground(op wire.Op, a *wire.Ask) { f.calls = append(f.calls, call{op, a.Units}) }

var limit = &bucket.Limit{Algorithm: bucket.FixedWindow, Rate: 100, Per: 2 * time.Minute}

func ask() *wire.Ask { return &wire.Ask{ID: bucket.ID{Hi: 1, Lo: 2}, Limit: limit, Units: 10} }

func (f *fake) make() *Reservation {
	v, a := new(Reservation), ask()
	a.Began = f.cfg.Clock.Monotonic()
	f.Make(v, a, &wire.Result{Result: bucket.Result{Allowed: true, ResetAfter: limit.Per}})
	return v
}

func TestReservationHasStartOfItsWindow(t *testing.T) {
	f, v, a := newFake(""), new(Reservation), ask()
	a.Began = f.cfg.Clock.Monotonic()
	f.Make(v, a, &wire.Result{Result: bucket.Result{Allowed: true, ResetAfter: time.Minute}, Age: 20 * time.Second})
	require.GreaterOrEqual(t, v.spent, a.Began-int64(20*time.Second))
	require.LessOrEqual(t, v.spent, f.cfg.Clock.Monotonic()-int64(20*time.Second))
}

func TestSettleReplacesEstimateByActualCost(t *testing.T) {
	for actual, want := range map[int64][]call{
		10: nil,
		4:  {{wire.OpRefund, 6}},
		0:  {{wire.OpRefund, 10}},
		13: {{wire.OpDebit, 3}},
	} {
		f := newFake("")
		require.NoError(t, f.make().Settle(t.Context(), limit, actual))
		require.Equal(t, want, f.calls, "%d of 10", actual)
	}
	f := newFake("")
	require.NoError(t, f.make().Cancel(t.Context(), limit))
	require.Equal(t, []call{{wire.OpRefund, 10}}, f.calls)
	require.Equal(t, Stats{Made: 1, Canceled: 1, UnitsReturned: 10}, f.Stats())
}

func TestReservationIsSettledOnceBeforeExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake("")
		v, late := f.make(), f.make()
		require.EqualValues(t, 10, v.Units())
		require.Equal(t, limit.Per, time.Until(v.Expires()))
		require.NoError(t, v.Settle(t.Context(), limit, 4))
		require.ErrorIs(t, v.Settle(t.Context(), limit, 4), ErrSettled)
		require.ErrorIs(t, v.Cancel(t.Context(), limit), ErrSettled)
		require.Empty(t, v.Text())
		time.Sleep(limit.Per)
		require.ErrorIs(t, late.Settle(t.Context(), limit, 4), env.ErrExpired)
		require.Empty(t, late.Text())
		require.Len(t, f.calls, 1)
		time.Sleep(2 * time.Second)
		require.Equal(t, Stats{Made: 2, Settled: 1, Unsettled: 1, UnitsReturned: 6}, f.Stats())
	})
}

func TestOnlyOneHolderOfTextSettles(t *testing.T) {
	secret := []byte("sixteen bytes...")
	f := newFake("eu", secret)
	v, other, opened := f.make(), newFake("eu", secret), new(Reservation)
	other.markers = f.markers // both ask the same cluster
	text := v.Text()
	require.NoError(t, other.Open(opened, ask(), text))
	require.EqualValues(t, 10, opened.Units())
	require.WithinDuration(t, v.Expires(), opened.Expires(), time.Second)
	require.NoError(t, opened.Settle(t.Context(), limit, 4))
	require.ErrorIs(t, v.Settle(t.Context(), limit, 4), ErrSettled)
	require.ErrorIs(t, opened.Settle(t.Context(), limit, 4), ErrSettled)
	require.Empty(t, f.calls)
	require.Equal(t, []call{{wire.OpRefund, 6}}, other.calls)
	require.Equal(t, Stats{Made: 1, Carried: 1}, f.Stats())
}

func TestFailedSettleOfCarriedReservationCanBeRetried(t *testing.T) {
	f := newFake("")
	v := f.make()
	require.NotEmpty(t, v.Text())
	f.source = wire.FailedClosed
	require.ErrorIs(t, v.Settle(t.Context(), limit, 4), env.ErrUnavailable)
	f.source, f.err = 0, errors.New("canceled")
	require.ErrorIs(t, v.Settle(t.Context(), limit, 4), f.err)
	f.err = nil
	clear(f.markers)
	require.NoError(t, v.Settle(t.Context(), limit, 4))
}

func TestTextForAnotherUseIsForeign(t *testing.T) {
	secret := []byte("sixteen bytes...")
	f := newFake("eu", secret)
	text := f.make().Text()
	another := ask()
	another.ID.Lo++
	for name, err := range map[string]error{
		"another key":     f.Open(new(Reservation), another, text),
		"another region":  newFake("us", secret).Open(new(Reservation), ask(), text),
		"another cluster": newFake("eu", []byte("sixteen others..")).Open(new(Reservation), ask(), text),
		"no text":         f.Open(new(Reservation), ask(), ""),
	} {
		require.ErrorIs(t, err, ErrForeign, name)
	}
}

func TestTextExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake("")
		text := f.make().Text()
		time.Sleep(limit.Per)
		require.ErrorIs(t, f.Open(new(Reservation), ask(), text), env.ErrExpired)
	})
}

func TestReservationLivesAsLongAsItsUnitsCount(t *testing.T) {
	for _, c := range []struct {
		limit bucket.Limit
		want  time.Duration
	}{
		{bucket.Limit{Algorithm: bucket.FixedWindow, Rate: 1, Per: 10 * time.Minute}, 10 * time.Minute},
		{bucket.Limit{Algorithm: bucket.SlidingLog, Rate: 1, Per: 10 * time.Minute}, 10 * time.Minute},
		{bucket.Limit{Algorithm: bucket.SlidingWindow, Rate: 1, Per: 10 * time.Minute}, 20 * time.Minute},
		{bucket.Limit{Algorithm: bucket.TokenBucket, Rate: 10, Per: time.Minute, Burst: 50}, 5 * time.Minute},
		{bucket.Limit{Algorithm: bucket.FixedWindow, Rate: 1, Per: time.Second}, leastLife},
		{bucket.Limit{Algorithm: bucket.FixedWindow, Rate: 1, Per: 24 * time.Hour}, longestLife},
	} {
		require.Equal(t, c.want, lifetimeOf(&c.limit), "%v", c.limit)
	}
}

// newFakeAhead returns a fake whose time of day is ahead by a duration. Several fakes share the store of
// their markers, and use the same monotonic clock as the time of the store.
func newFakeAhead(ahead time.Duration, markers *bucket.Store) *fake {
	f := newFake("", []byte("sixteen bytes..."))
	clock := f.cfg.Clock
	f.cfg.Clock = env.NewClock(func() time.Time { return time.Now().Add(ahead) })
	f.shared = func(a *wire.Ask) bucket.Result { return markers.Take(a.ID, a.Limit, clock.Monotonic(), a.Units) }
	return f
}

// A node whose clock is behind opens a text for longer than other nodes.
func TestMarkerOutlastsTextOnSlowClock(t *testing.T) {
	const behind = markerSlack - time.Second
	synctest.Test(t, func(t *testing.T) {
		markers := bucket.NewStore(10, bucket.Salt{})
		f, slow := newFakeAhead(0, markers), newFakeAhead(-behind, markers)
		v := f.make()
		text := v.Text()
		require.NoError(t, v.Cancel(t.Context(), limit))
		time.Sleep(limit.Per + behind - time.Second)
		opened := new(Reservation)
		require.NoError(t, slow.Open(opened, ask(), text))
		require.ErrorIs(t, opened.Cancel(t.Context(), limit), ErrSettled)
		require.Empty(t, slow.calls)
	})
}
