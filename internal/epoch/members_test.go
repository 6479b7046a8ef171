package epoch

import (
	"context"
	"fmt"
	"slices"
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

// asked is a Peer that counts the requests, and responds after a given time.
type asked struct {
	cluster.Peer
	of    *Members
	takes atomic.Int64 // nanoseconds from a request to the response
	asks  atomic.Int64
}

func (a *asked) Ask(_ context.Context, request, response []byte, _ time.Duration) ([]byte, error) {
	a.asks.Add(1)
	response, err := a.of.Serve(request[wire.HeaderBytes:], wire.AppendResponse(response[:0], wire.Done, 0))
	time.Sleep(time.Duration(a.takes.Load()))
	return response, err
}

// A node dates messages once each neighbor has responded.
func TestDateIsUnknownUntilMembersHaveMet(t *testing.T) {
	const age, exact = time.Hour, 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		e := env.Env{Clock: env.NewClock(nil)}
		other := &asked{of: NewMembers(Config{Env: &e})}
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
		require.Zero(t, m.Date(), "a slow response is not exact enough")
		other.takes.Store(int64(time.Millisecond))
		time.Sleep(lookEvery)
		require.InDelta(t, other.of.Age(), m.Date(), float64(2*time.Millisecond))
		swap(false)
		require.NotZero(t, m.Date(), "without a connection, this node need not wait for a neighbor")
		swap(true)
		require.Zero(t, m.Date())
		time.Sleep(2 * time.Millisecond)
		require.InDelta(t, other.of.Age(), m.Date(), float64(2*time.Millisecond))

		other.of.began.Add(-int64(time.Minute)) // as if the clock of this node had stopped
		time.Sleep(lookRested)
		require.InDelta(t, other.of.Age(), m.Date(), float64(2*time.Millisecond))
	})
}

// Each of 100 members has four neighbors, and connections to all members.
func TestMembersAgreeThroughTheirNeighbors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, settled, joined = 100, 200 * time.Millisecond, 57
		nodes, peers := make([]*Members, size), make([]*asked, size)
		for i := range nodes {
			nodes[i] = NewMembers(Config{Env: &env.Env{Clock: env.NewClock(nil)}, Exact: 100 * time.Millisecond})
			peers[i] = &asked{of: nodes[i]}
			peers[i].takes.Store(int64(time.Millisecond))
		}
		asks := func() (n int64) {
			for _, p := range peers {
				n += p.asks.Swap(0)
			}
			return n
		}
		join := func(i int) {
			c := &cluster.View{Self: i, Connected: make([][]int, size), Direct: slices.Repeat([]bool{true}, size)}
			for k, p := range peers {
				c.Members = append(c.Members, cluster.Member{Name: fmt.Sprintf("n%02d", k), State: cluster.Serving, Peer: p})
				for _, step := range []int{1, 7, size - 7, size - 1} {
					c.Connected[k] = append(c.Connected[k], (k+step)%size)
				}
				slices.Sort(c.Connected[k])
			}
			nodes[i].cfg.Env.Store(view.New(0, c, view.Terms{}, nil))
			nodes[i].Swapped(nodes[i].cfg.Env.View())
			go nodes[i].Run(t.Context())
		}
		agree := func(age time.Duration, epoch uint64) {
			t.Helper()
			time.Sleep(settled)
			for _, m := range nodes {
				require.InDelta(t, age+settled, m.Date(), float64(30*time.Millisecond))
				require.Equal(t, epoch, m.Clock.Now(0).Epoch)
			}
		}
		time.Sleep(time.Hour)
		for i := range nodes {
			if i != joined {
				nodes[i].began.Store(nodes[i].cfg.Env.Monotonic())
			}
		}
		for i := range nodes {
			join(i)
		}
		agree(time.Hour, 0)
		require.LessOrEqual(t, asks(), int64(16*size), "each node asks its four neighbors, and again after each change")
		nodes[joined].Clock.Begin(9)
		nodes[joined].changed()
		agree(time.Hour+settled, 9)
		require.LessOrEqual(t, asks(), int64(8*size))
	})
}
