package weir

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/wire"
)

// Each of these is asked for on one node that owns all, on one that owns none, and
// on one that owns some.
func TestShadowsAreCountedAndNeverEnforced(t *testing.T) {
	t.Parallel()
	nodes := fleet(t, 3, nil)
	few := limiters(t, nodes, Limit{Name: "few", Algorithm: SlidingLog, Rate: 2, Per: time.Hour})[0]
	many := limiters(t, nodes, Limit{Name: "many", Algorithm: TokenBucket, Rate: 100, Per: 365 * 24 * time.Hour})[0]
	for where, owners := range map[string][2]*Node{
		"owned":          {nodes[0], nodes[0]},
		"forwarded":      {nodes[1], nodes[1]},
		"of two owners":  {nodes[1], nodes[2]},
		"here and there": {nodes[0], nodes[1]},
		"there and here": {nodes[1], nodes[0]},
	} {
		t.Run(where, func(t *testing.T) {
			whileHealthy(t, func(t *testing.T) decisions {
				f, m := Ask{Limiter: few, Key: ownedBy(t, few, owners[0])}, Ask{Limiter: many, Key: ownedBy(t, many, owners[1])}
				fs, ms := f, m
				fs.Shadow, ms.Shadow = true, true
				left := func(fewLeft, manyLeft int64) {
					t.Helper()
					eventually(t, fmt.Sprintf("%d and %d are left", fewLeft, manyLeft), func() bool {
						df, err := few.Peek(t.Context(), f.Key)
						require.NoError(t, err)
						dm, err := many.Peek(t.Context(), m.Key)
						require.NoError(t, err)
						byOwners(t, df, dm)
						return df.Remaining == fewLeft && dm.Remaining == manyLeft
					})
				}
				ask := func(asks ...Ask) Decisions {
					t.Helper()
					ds, err := nodes[0].AllowAll(t.Context(), asks...)
					require.NoError(t, err)
					byOwners(t, ds...)
					return ds
				}
				for _, a := range []Ask{f, m} {
					eventually(t, "it is reset", func() bool { return a.Limiter.Reset(t.Context(), a.Key) == nil })
				}

				for range 2 {
					ds := ask(fs, m)
					require.True(t, ds.Allowed() && ds[0].Allowed && ds[0].Shadow && !ds[1].Shadow)
				}
				left(0, 98)
				ds := ask(fs, m)
				require.True(t, ds.Allowed(), "a shadow denies nothing")
				require.False(t, ds[0].Allowed, "and says that it would have")
				require.Positive(t, ds[0].RetryAfter)
				require.Equal(t, "many", ds.Strictest().Name, "of those that are enforced")
				left(0, 97)

				ds = ask(f, ms)
				require.False(t, ds.Allowed())
				require.True(t, ds[1].Allowed, "it would have been")
				left(0, 97)
				ds = ask(f, ms, ms)
				require.False(t, ds.Allowed())
				left(0, 97)

				require.True(t, ask(fs).Allowed(), "a shadow alone")
				require.Zero(t, ask(fs).Strictest())
				ds = ask(ms, ms)
				require.True(t, ds[0].Shadow && ds[1].Shadow && ds[0].Allowed)
				require.EqualValues(t, 95, ds[1].Remaining, "the two are summed")
				ds = ask(ms, m)
				require.False(t, ds[0].Shadow || ds[1].Shadow, "enforced if one of them is")
				left(0, 93)

				huge := ms
				huge.Units = 1_000
				ds = ask(huge, Ask{Limiter: few, Key: "of its own " + t.Name()})
				require.True(t, ds.Allowed(), "what can never be granted is a denial, of a shadow")
				require.False(t, ds[0].Allowed)
				left(0, 93)
				huge.Shadow = false
				_, err := nodes[0].AllowAll(t.Context(), huge, f)
				require.ErrorIs(t, err, ErrInvalid)
				ds, err = nodes[0].AllowAll(t.Context(), Ask{Limiter: many, Key: m.Key, Units: -1, Shadow: true})
				require.ErrorIs(t, err, ErrInvalid)
				require.False(t, ds.Allowed(), "with an error everything is a denial")
				return nil
			})
		})
	}
	total := nodes[0].Stats().Shadows
	require.Positive(t, total.Allowed)
	require.Positive(t, total.Denied)
}

func TestHoldsAndReservationsOfShadowsAreCountedApart(t *testing.T) {
	t.Parallel()
	whileHealthy(t, func(t *testing.T) decisions {
		nodes := fleet(t, 2, nil)
		flights := limiters(t, nodes, Limit{Name: "flights", Algorithm: InFlight, Rate: 2})[0]
		tokens := limiters(t, nodes, Limit{Name: "tokens", Rate: 2, Per: time.Hour})[0]
		for name, ask := range map[string]func(l *Limiter, key string) (Decision, error){
			"Hold": func(l *Limiter, key string) (Decision, error) {
				h, err := l.Hold(t.Context(), key, 2)
				return h.Decision(), err
			},
			"HoldFor": func(l *Limiter, key string) (Decision, error) {
				_, d, err := l.HoldFor(t.Context(), key, 2, time.Minute)
				return d, err
			},
			"Reserve": func(l *Limiter, key string) (Decision, error) {
				v, err := l.Reserve(t.Context(), key, 2)
				return v.Decision(), err
			},
			"AllowN": func(l *Limiter, key string) (Decision, error) { return l.AllowN(t.Context(), key, 2) },
			"AllowAll": func(l *Limiter, key string) (Decision, error) {
				ds, err := nodes[0].AllowAll(t.Context(), Ask{Limiter: l, Key: key, Units: 2})
				require.True(t, ds.Allowed(), "a shadow denies nothing")
				return ds[0], err
			},
		} {
			l := flights
			if name == "Reserve" || strings.HasPrefix(name, "Allow") {
				l = tokens
			}
			for _, owner := range nodes {
				key, before := "", nodes[0].Stats()
				for i := 0; key == "" || l.Owner(key).Name != owner.name(); i++ {
					key = fmt.Sprint(name, i)
				}
				for _, allowed := range []bool{true, false} {
					d, err := ask(l.Shadow(), key)
					require.NoError(t, err)
					byOwners(t, d)
					require.True(t, d.Shadow, name)
					require.Equal(t, allowed, d.Allowed, name)
				}
				after := nodes[0].Stats()
				require.Equal(t, Outcomes{before.Shadows.Allowed + 1, before.Shadows.Denied + 1}, after.Shadows, name)
				require.Equal(t, before.Limits, after.Limits, name)
				d, err := l.Peek(t.Context(), key)
				require.NoError(t, err)
				byOwners(t, d)
				require.Zero(t, d.Remaining, "what a shadow has is spent or held")
			}
		}
		v, err := tokens.Shadow().Reserve(t.Context(), "key", 3)
		require.NoError(t, err, "more than there can ever be")
		require.False(t, v.Decision().Allowed)
		_, err = tokens.Reserve(t.Context(), "key", 3)
		require.ErrorIs(t, err, ErrInvalid)
		return nil
	})
}

func TestShadowsInAnOutageDenyNothing(t *testing.T) {
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

func TestAllowAllIntoKeepsToTheRoomItIsGiven(t *testing.T) {
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
	require.False(t, ds.Allowed(), "what was there before is no answer")
}

// told is a Peer that notes what it is told.
type told struct {
	cluster.Peer
	requests [][]byte
}

func (p *told) Tell(request []byte) { p.requests = append(p.requests, request) }

func TestALateYesGivesBackTheShadowsThatSpent(t *testing.T) {
	n := solo(t, Config{})
	limit := bucket.Limit{Rate: 10, Per: time.Hour}
	late := func(enforced bool) (units []int64) {
		request := wire.Header{Op: wire.OpTake, Asks: 3, Hops: wire.MaxHops}.Append(nil)
		answer := wire.AppendAnswer(nil, wire.Done, 3)
		for i, allowed := range []bool{enforced, false, true} {
			a := wire.Ask{ID: bucket.ID{Hi: uint64(i)}, Limit: &limit, Units: int64(i + 1), Shadow: i > 0}
			request = a.Append(request)
			r := wire.Result{Result: bucket.Result{Allowed: allowed, Receipt: bucket.Receipt(i + 7)}, Source: wire.Owner, StoodIn: i > 0, Firm: false, Lease: wire.Lease{}, ResetNumber: uint64(i + 1), Ahead: 0}
			answer = r.Append(answer)
		}
		var to told
		inbound{n}.Late(&to, request, answer)
		for _, refund := range to.requests {
			h, err := wire.ParseHeader(refund)
			require.NoError(t, err)
			require.Equal(t, wire.OpRefund, h.Op)
			for i := range int(h.Asks) {
				a, err := wire.ParseAsk(refund, i, new(bucket.Limit))
				require.NoError(t, err)
				require.EqualValues(t, a.Units+6, a.Receipt)
				require.Equal(t, a.Units > 1, a.StoodIn, "who granted it without authority is told so")
				units = append(units, a.Units)
			}
		}
		return units
	}
	require.Equal(t, []int64{1, 3}, late(true))
	require.EqualValues(t, 4, n.Stats().LateUnits)
	require.Empty(t, late(false), "nothing was spent")
}
