package holds

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/wire"
)

// releaseCounter is a peer that counts the releases that it receives.
type releaseCounter struct {
	cluster.Peer
	t        *testing.T
	releases int
}

func (m *releaseCounter) Send(message []byte) {
	h, err := wire.ParseHeader(message)
	require.NoError(m.t, err)
	require.Equal(m.t, wire.OpRelease, h.Op)
	m.releases++
}

// If a stand-in knows of a late grant, it considers the hold to be granted. If the grant were
// released nevertheless, no member would count the units of the holder.
func TestLateGrantIsReleasedUnlessHeldOrRequested(t *testing.T) {
	for _, c := range []struct {
		name  string
		does  func(h *Holds, a *wire.Ask, late func())
		owner int // number of releases that the owner receives
		other int // number of releases that the other member receives
		asks  int // number of holds that the node still requests
	}{
		{"grant without an ask in progress", func(_ *Holds, _ *wire.Ask, late func()) { late() }, 1, 1, 0},
		{"ask to another member in progress", func(h *Holds, a *wire.Ask, late func()) { h.RecordAsk(a); late() }, 0, 0, 1},
		{"no grant in time", func(h *Holds, a *wire.Ask, late func()) {
			h.RecordAsk(a)
			late()
			h.RecordAsk(a)
			late()
			h.GiveUp(a)
			h.GiveUp(a)
		}, 1, 1, 0},
		{"grant after the ask has ended", func(h *Holds, a *wire.Ask, late func()) {
			h.RecordAsk(a)
			h.GiveUp(a)
			late()
		}, 1, 1, 0},
		{"grant by another member", func(h *Holds, a *wire.Ask, late func()) {
			h.RecordAsk(a)
			late()
			h.RecordGrant(new(Hold), a, new(wire.Result), 0)
			late()
		}, 0, 0, 0},
		{"grant after the hold was released", func(h *Holds, a *wire.Ask, late func()) {
			h.RecordAsk(a)
			o := new(Hold)
			h.RecordGrant(o, a, new(wire.Result), 0)
			h.Release(o)
			late()
		}, 1, 1, 0},
		{"ask on behalf of another node", func(_ *Holds, a *wire.Ask, late func()) {
			a.Hold.Holder++
			late()
		}, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newMembers(t, 3)[0].Holds
			owner, other := &releaseCounter{t: t}, &releaseCounter{t: t}
			a := wire.Ask{ID: bucket.ID{Hi: 1, Lo: 2}, Limit: &bucket.Limit{Algorithm: bucket.InFlight, Rate: 10}, Units: 1}
			h.Name(&a, Terms{Number: h.Number()})
			c.does(h, &a, func() {
				h.HandleLateGrant(owner, 1, &a)
				h.HandleLateGrant(other, 2, &a)
			})
			require.Equal(t, c.owner, owner.releases)
			require.Equal(t, c.other, other.releases)
			require.Equal(t, c.asks, len(h.table.shards[shardOf(a.ID)].asks), "number of holds that are still requested")
		})
	}
}
