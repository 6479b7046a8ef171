package owner

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// banModel is a simple version of the bans of one key.
type banModel struct {
	denials []time.Duration // the last denials that count, at most as many as ban the key
	begun   []time.Duration
	until   time.Duration
}

// strike adds a denial, and returns whether it begins a ban.
func (m *banModel) strike(at time.Duration, most int, within time.Duration, lengths *wire.Ban) bool {
	if at < m.until {
		return false
	}
	m.denials = slices.DeleteFunc(m.denials, func(d time.Duration) bool { return at-d >= within })
	if len(m.denials) < most {
		m.denials = append(m.denials, at)
	}
	if len(m.denials) < most {
		return false
	}
	memory := 24 * time.Hour
	for _, length := range lengths {
		memory = max(memory, 2*length)
	}
	m.begun = slices.DeleteFunc(m.begun, func(b time.Duration) bool { return at-b >= memory })
	step := lengths[0]
	for i, length := range lengths {
		if i <= len(m.begun) && length > 0 {
			step = length
		}
	}
	m.begun, m.until = append(m.begun, at), at+step
	return true
}

func TestBansFollowTheirDenials(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 6).Draw(t, "denials")
		within := time.Duration(rapid.IntRange(1, 600).Draw(t, "within")) * time.Second
		var lengths wire.Ban
		for i := range rapid.IntRange(1, wire.BanSteps).Draw(t, "lengths") {
			lengths[i] = rapid.SampledFrom([]time.Duration{1, 60, 600, 3600, 86400}).Draw(t, "length") * time.Second
		}
		o, v := newOwner()
		strikes := bucket.Limit{Algorithm: bucket.SlidingLog, Rate: int64(most), Per: within}
		limit := bucket.Limit{Rate: 10, Per: time.Minute}
		strike := wire.Ask{ID: bucket.ID{Hi: 7, Lo: 8}, Limit: &strikes, Units: 1, BansKeys: true, Ban: lengths}
		take := wire.Ask{ID: strike.ID, Limit: &limit, Units: 1, BansKeys: true}
		var model banModel
		at := time.Hour
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			at += time.Duration(rapid.SampledFrom([]int{0, 1, 10, 100, 3600, 40_000}).Draw(t, "pause")) * time.Second
			if rapid.Bool().Draw(t, "strikes") {
				var r wire.Result
				o.Do(v, view.AsOwner, wire.OpStrike, &strike, int64(at), &r)
				if begins := model.strike(at, most, within, &lengths); begins != (r.Granted > 0) {
					t.Fatalf("at %v a ban begins: %v, and the model says %v", at, r.Granted > 0, begins)
				}
			}
			var r wire.Result
			o.Do(v, view.AsOwner, wire.OpPeek, &take, int64(at), &r)
			if left := max(0, model.until-at); r.Banned != (left > 0) || r.Banned && r.RetryAfter != left {
				t.Fatalf("at %v: %+v, and the model is banned for %v", at, r, left)
			}
		}
	})
}

// A denial that arrives while another denial begins a ban waits, and does not begin the next ban.
func TestConcurrentDenialsBeginOneBan(t *testing.T) {
	o, v := newOwner()
	at := int64(time.Hour)
	strikes := bucket.Limit{Algorithm: bucket.SlidingLog, Rate: 1, Per: time.Minute}
	a := wire.Ask{ID: bucket.ID{Hi: 7, Lo: 8}, Limit: &strikes, Units: 1, BansKeys: true, Ban: wire.Ban{time.Minute, 10 * time.Minute}}
	o.bans.Lock()
	struck := make(chan wire.Result)
	go func() {
		var r wire.Result
		o.Do(v, view.AsOwner, wire.OpStrike, &a, at, &r)
		struck <- r
	}()
	for o.used(strikesID(a.ID), at) == 0 {
		runtime.Gosched()
	}
	select {
	case r := <-struck:
		require.Fail(t, "a denial does not wait", "%+v", r)
	case <-time.After(10 * time.Millisecond):
	}
	o.counts.Debit(banID(a.ID), &banTimer, at, int64(time.Minute/banTimer.Per))
	o.counts.Debit(earlierID(a.ID), &bucket.Limit{Algorithm: bucket.SlidingLog, Rate: wire.BanSteps, Per: leastMemory}, at, 1)
	o.bans.Unlock()
	r := <-struck
	require.True(t, r.Banned && r.Granted == 0, "%+v", r)
	require.Equal(t, time.Minute, r.RetryAfter)
}

func TestNodeWithShareBeginsNoBan(t *testing.T) {
	o, _ := newOwner()
	strikes, limit := bucket.Limit{Algorithm: bucket.SlidingLog, Rate: 1, Per: time.Minute}, bucket.Limit{Rate: 10, Per: time.Minute}
	do := func(v *view.View, as view.Standing, op wire.Op) (r wire.Result) {
		a := wire.Ask{ID: bucket.ID{Hi: 1 << 63, Lo: 2}, Limit: &limit, Units: 1, BansKeys: true}
		if op == wire.OpStrike {
			a.Limit, a.Ban = &strikes, wire.Ban{time.Minute}
		}
		o.Do(v, as, op, &a, int64(time.Hour), &r)
		return r
	}
	minority := sideOf(5, 0)
	require.False(t, do(minority, view.AsSelf, wire.OpStrike).Banned)
	require.True(t, do(minority, view.AsSelf, wire.OpTake).Allowed)
	_, whole := newOwner()
	require.EqualValues(t, 1, do(whole, view.AsOwner, wire.OpStrike).Granted)
	for _, as := range []view.Standing{view.AsSelf, view.AsStandIn} {
		r := do(minority, as, wire.OpTake)
		require.True(t, r.Banned && r.Firm && !r.Allowed)
		require.Equal(t, time.Minute, r.RetryAfter)
		require.True(t, r.Source.IsShare())
	}
	require.False(t, do(whole, view.AsOwner, wire.OpDebit).Banned, "a debit counts")
}

func TestBanOfOneAskDeniesAll(t *testing.T) {
	o, v := newOwner()
	limit, strikes := bucket.Limit{Rate: 10, Per: time.Minute}, bucket.Limit{Algorithm: bucket.SlidingLog, Rate: 1, Per: time.Minute}
	asks := []wire.Ask{
		{ID: bucket.ID{Hi: 1, Lo: 1}, Limit: &limit, Units: 1, BansKeys: true},
		{ID: bucket.ID{Hi: 2, Lo: 2}, Limit: &limit, Units: 1},
	}
	strike := wire.Ask{ID: asks[0].ID, Limit: &strikes, Units: 1, BansKeys: true, Ban: wire.Ban{time.Minute}}
	o.Do(v, view.AsOwner, wire.OpStrike, &strike, int64(time.Hour), new(wire.Result))
	for _, shadow := range []bool{false, true} {
		asks[0].Shadow = shadow
		results := make([]wire.Result, 2)
		o.TakeAll(v, view.AsOwner, asks, int64(time.Hour), new(Room), results)
		require.True(t, results[0].Banned)
		require.Equal(t, time.Minute, results[0].RetryAfter)
		require.Equal(t, shadow, o.used(asks[1].ID, int64(time.Hour)) == 1)
		require.Equal(t, wire.Owner, results[1].Source)
	}
}
