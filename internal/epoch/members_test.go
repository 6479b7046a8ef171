package epoch

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/cluster/clustertest"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// elder is the peer of a member whose cluster has run for an hour.
type elder struct {
	cluster.Peer
	of    *Members
	takes atomic.Int64 // nanoseconds until it responds
}

func (e *elder) Ask(_ context.Context, _, response []byte, _ time.Duration) ([]byte, error) {
	response, err := e.of.Serve(nil, wire.AppendResponse(response[:0], wire.Done, 0))
	time.Sleep(time.Duration(e.takes.Load()))
	return response, err
}

// A node dates messages once it has asked each member that it is connected to.
func TestDateIsUnknownUntilMembersHaveMet(t *testing.T) {
	const age, exact = time.Hour, 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		e := env.Env{Clock: env.NewClock(nil)}
		other := &elder{of: NewMembers(Config{Env: &e})}
		other.takes.Store(int64(exact + 1))
		time.Sleep(age)
		m := NewMembers(Config{Env: &e, Exact: exact})
		swap := func(heard bool) {
			direct := []bool{true, heard}
			e.Store(view.New(0, &cluster.View{
				Members: []cluster.Member{{Name: "a", State: cluster.Serving}, {Name: "b", State: cluster.Serving, Peer: other}},
				Direct:  direct, Connected: clustertest.Rows([][]bool{direct, direct}),
			}, view.Terms{}, nil))
			m.Swapped(e.View())
		}
		swap(true)
		go m.Run(t.Context())
		time.Sleep(time.Second)
		require.Zero(t, m.Date(), "the response was slow")
		other.takes.Store(int64(time.Millisecond))
		time.Sleep(lookEvery)
		require.InDelta(t, other.of.Age(), m.Date(), float64(2*time.Millisecond))
		swap(false)
		require.NotZero(t, m.Date(), "this node hears no other member")
		swap(true)
		require.Zero(t, m.Date())
		time.Sleep(2 * time.Millisecond)
		require.InDelta(t, other.of.Age(), m.Date(), float64(2*time.Millisecond))

		other.of.began.Add(-int64(time.Minute)) // as if the clock of this node had stopped
		time.Sleep(lookRested)
		require.InDelta(t, other.of.Age(), m.Date(), float64(2*time.Millisecond))
	})
}
