package cluster

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/detect"
)

// Gossip reports once that a member is alive, and once that it is dead. If a later mistake makes a
// member dead, the connection to it makes it alive again.
func TestConnectedMemberDoesNotStayDead(t *testing.T) {
	var dead atomic.Bool
	a := NewGossip(Config{Name: "a", Bind: "127.0.0.1:0"}).(*gossipCluster)
	stands := func(s State) bool {
		v := a.View()
		return len(v.Members) == 2 && v.Members[1].State == s && v.Direct[1]
	}
	start := func(g *gossipCluster, changed func()) {
		t.Cleanup(func() { require.NoError(t, g.Close()) })
		require.NoError(t, g.Start(t.Context(), &testHandler{changed: changed}))
		require.NoError(t, g.Announce(Serving))
	}
	start(a, func() {
		if stands(Dead) {
			dead.Store(true)
		}
	})
	start(NewGossip(Config{Name: "b", Bind: "127.0.0.1:0", Join: []string{a.advertise}}).(*gossipCluster), nil)
	require.Eventually(t, func() bool { return stands(Serving) }, time.Minute, 5*time.Millisecond)
	a.step(func(r *detect.Roster) detect.Change { return r.RecordDeath("b", false, time.Now()) })
	require.Eventually(t, dead.Load, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return stands(Serving) }, time.Minute, 5*time.Millisecond)
}
