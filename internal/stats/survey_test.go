package stats

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/cluster/clustertest"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// member is a member of a cluster in which all members are connected to each other.
type member struct {
	*Survey
	env    env.Env
	meters Meters
	mute   bool             // whether it leaves requests unanswered
	held   map[string]int64 // units in flight, by key
}

func newMembers(n, keys int) []*member {
	all := make([]*member, n)
	for i := range all {
		m := &member{held: make(map[string]int64)}
		m.env.Clock = env.OneClock(func() int64 { return 1 })
		m.meters.TopKeys.Start(keys, 0)
		m.Survey = NewSurvey(SurveyConfig{
			Env: &m.env, Meters: &m.meters, TellsKeys: true, Checks: checks{m: m},
			InFlight: func(limit string) (rate int64, known bool) { return 10, limit == "in flight" },
		})
		all[i] = m
	}
	for self, m := range all {
		v := &cluster.View{Self: self}
		for i := range all {
			v.Members = append(v.Members, cluster.Member{Name: string(rune('a' + i)), State: cluster.Serving, Announced: cluster.Serving, Peer: all[i]})
			v.Direct = append(v.Direct, true)
		}
		v.Connected = clustertest.Mesh(len(all))
		m.env.Store(view.New(0, v, view.Terms{}, nil))
	}
	return all
}

// checks implements the checks of a member.
type checks struct {
	env.Checks
	m *member
}

// Do sets r from the number of units in flight that the member holds.
func (c checks) Do(_ context.Context, _ wire.Op, a *wire.Ask, r *wire.Result) error {
	for key, held := range c.m.held {
		if surveyID(a.Name, key) == a.ID {
			r.Limit, r.Remaining = a.Limit.Rate, a.Limit.Rate-held
			return nil
		}
	}
	return errors.New("no member answers")
}

func (m *member) Ask(_ context.Context, request, answer []byte, _ time.Duration) ([]byte, error) {
	if m.mute {
		return nil, cluster.ErrTimeout
	}
	h, err := wire.ParseHeader(request)
	if err != nil {
		return nil, err
	}
	b := wire.AppendResponse(answer[:0], wire.Done, 0)
	if h.Op == wire.OpTop {
		return m.AppendTop(b), nil
	}
	return m.AppendTotals(b), nil
}

func (m *member) Send([]byte) {}

func (*member) Delay() time.Duration         { return 0 }
func (m *member) Protocol() cluster.Protocol { return cluster.Protocol{} }

func surveyID(limit, key string) bucket.ID {
	return identity.Identity{}.ID(identity.Prefix(limit), key)
}

// ask counts a check of a caller of the member.
func (m *member) ask(limit, key string, secret, allowed bool) {
	id := surveyID(limit, key)
	m.meters.TopKeys.Add(identity.Bytes(id), limit, key, secret, allowed, 1, 1)
	m.meters.Limits.CountersOf(limit).CountDecision(id, &wire.Result{Result: bucket.Result{Allowed: allowed}, Source: wire.Owner}, false)
}

func TestTopMergesKeysOfAllMembers(t *testing.T) {
	all := newMembers(3, 16)
	for range 3 {
		all[0].ask("limit", "one", false, true)
		all[1].ask("limit", "one", false, false)
		all[1].ask("limit", "another", false, true)
	}
	all[2].ask("limit", "sk_live_0123456789abcdef", true, true)
	top, err := all[0].Top(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, []TopKey{
		{Limit: "limit", ID: identity.Bytes(surveyID("limit", "one")), Key: "one", Known: true, Asks: 6, Denials: 3},
		{Limit: "limit", ID: identity.Bytes(surveyID("limit", "another")), Key: "another", Known: true, Asks: 3},
	}, top.Asked, "at most the requested number")
	require.Len(t, top.Denied, 1)
	top, err = all[0].Top(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, "…cdef", top.Asked[2].Key)
	require.True(t, top.Asked[2].Masked)
}

func TestUnansweringMembersAreMissing(t *testing.T) {
	all := newMembers(3, 16)
	all[0].ask("limit", "key", false, true)
	all[1].ask("limit", "key", false, true)
	all[1].mute = true
	top, err := all[0].Top(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, top.Missing)
	require.EqualValues(t, 1, top.Asked[0].Asks)
	totals, missing, err := all[0].Totals(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, missing)
	require.Len(t, totals, 2)
	a := totals["a"]
	require.EqualValues(t, 1, a.Sources[wire.Owner].Allowed)
}

func TestMemberWithoutTopKeysIsSilent(t *testing.T) {
	top, err := newMembers(2, -1)[0].Top(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, ClusterTop{Silent: []string{"a", "b"}}, top)
}

func TestTopReportsHeldUnits(t *testing.T) {
	all := newMembers(2, 16)
	for _, key := range []string{"few", "many", "gone", "unreached"} {
		all[1].ask("in flight", key, false, true)
		all[1].ask("other", key, false, true)
	}
	all[0].held = map[string]int64{"few": 1, "many": 7, "gone": 0}
	top, err := all[0].Top(t.Context(), 5)
	require.NoError(t, err)
	require.Len(t, top.Held, 2)
	for i, want := range []string{"many", "few"} {
		require.Equal(t, want, top.Held[i].Key)
		require.Equal(t, all[0].held[want], top.Held[i].Held)
		require.EqualValues(t, 10, top.Held[i].Most)
	}
}

func TestSurveyReturnsErrorOfContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := newMembers(1, 16)[0].Top(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
	_, _, err = newMembers(1, 16)[0].Totals(ctx)
	require.ErrorIs(t, err, context.Canceled)
}
