package cluster

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/detect"
	"github.com/weir-go/weir/cluster/gossip"
)

// viewer is a handler that is called on each change of the view, also of one that lasts for a
// moment only.
type viewer func()

func (v viewer) Changed()                { v() }
func (viewer) Answered()                 {}
func (viewer) Serve(*Batch)              {}
func (viewer) Late(Peer, []byte, []byte) {}

// Gossip reports a life and a death once. If a member was taken for dead by mistake in between, the
// connection to the member brings it back.
func TestAMemberThatIsHeardDoesNotStayDead(t *testing.T) {
	var dead atomic.Bool
	a := NewGossip(Config{Name: "a", Bind: "127.0.0.1:0"}).(*gossipCluster)
	stands := func(s State) bool {
		v := a.View()
		return len(v.Members) == 2 && v.Members[1].State == s && v.Direct[1]
	}
	start := func(g *gossipCluster, changed viewer) {
		t.Cleanup(func() { require.NoError(t, g.Close()) })
		require.NoError(t, g.Start(t.Context(), changed))
		require.NoError(t, g.Announce(Serving))
	}
	start(a, func() {
		if stands(Dead) {
			dead.Store(true)
		}
	})
	start(NewGossip(Config{Name: "b", Bind: "127.0.0.1:0", Join: []string{a.advertise}}).(*gossipCluster), func() {})
	require.Eventually(t, func() bool { return stands(Serving) }, time.Minute, 5*time.Millisecond)
	a.step(func(r *detect.Roster) detect.Change { return r.RecordDeath("b", time.Now()) })
	require.Eventually(t, dead.Load, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return stands(Serving) }, time.Minute, 5*time.Millisecond)
}

func TestATableOutOfBoundsIsRefused(t *testing.T) {
	many := make([]string, detect.MaxRecords)
	for i := range many {
		many[i] = fmt.Sprint("m", i)
	}
	_, err := decodeTable(gossip.Encode(detect.Table{About: many[:1], Others: many[1:], Numbers: []uint64{1}, Bits: make([]byte, detect.MaxRecords/8)}))
	require.NoError(t, err, "as many as may be")
	for name, table := range map[string]detect.Table{
		"a number too many":            {About: []string{"a"}, Numbers: []uint64{1, 2}, Bits: []byte{0}},
		"a number too few":             {About: []string{"a", "b"}, Numbers: []uint64{1}, Bits: []byte{0}},
		"bits of nobody":               {About: []string{"a"}, Numbers: []uint64{1}, Bits: []byte{0, 0}},
		"bits that are not there":      {About: []string{"a"}, Numbers: []uint64{1}},
		"too many members":             {About: []string{"a"}, Others: many, Numbers: []uint64{1}, Bits: make([]byte, detect.MaxRecords/8+1)},
		"a member twice":               {About: []string{"a", "a"}, Numbers: []uint64{1, 2}, Bits: []byte{0}},
		"a name too long":              {About: []string{string(make([]byte, detect.MaxName+1))}, Numbers: []uint64{1}, Bits: []byte{0}},
		"refusals of nobody":           {About: []string{"a"}, Numbers: []uint64{1}, Bits: []byte{0}, Refused: []byte{0, 0}},
		"a number no one could outbid": {About: []string{"a"}, Numbers: []uint64{1 << 60}, Bits: []byte{0}},
	} {
		_, err := decodeTable(gossip.Encode(table))
		require.ErrorIs(t, err, errGarbage, name)
	}
}

func FuzzTable(f *testing.F) {
	h := detect.NewConnectivity("self")
	h.SetMembers([]string{"a", "b"})
	f.Add(gossip.Encode(h.Table()))
	f.Add(gossip.Encode(detect.Table{About: []string{"x", "y"}, Others: []string{"z"}, Numbers: []uint64{1, 2}, Bits: []byte{0x3F}}))
	f.Add(gossip.Encode(detect.Table{About: []string{"x", "y"}, Others: []string{"z"}, Numbers: []uint64{1, 2}, Bits: []byte{0}, Refused: []byte{0x3F}}))
	f.Add(binary.BigEndian.AppendUint64(nil, 1<<63))
	f.Fuzz(func(t *testing.T, b []byte) {
		decoded, err := decodeTable(b)
		if err != nil {
			return
		}
		h := detect.NewConnectivity("self")
		h.SetMembers([]string{"a", "b", "x", "y"})
		h.Merge(decoded)
		h.Connections([]string{"a", "self", "x"})
		again, err := decodeTable(gossip.Encode(h.Table()))
		require.NoError(t, err)
		require.Equal(t, string(gossip.Encode(h.Table())), string(gossip.Encode(again)))
	})
}
