package clustertests

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/full"
)

// launchAs starts a node with real gossip on a host. The node advertises the given address.
func (w *world) launchAs(t *testing.T, name, host, advertise string, edit ...func(*cluster.Config)) {
	t.Helper()
	c := cluster.Config{
		Name: fmt.Sprintf("%s-%d", name, time.Now().UnixNano()), Advertise: advertise, Forget: forget,
	}
	for _, other := range w.names {
		c.Join = append(c.Join, other+":7946")
	}
	for _, e := range edit {
		e(&c)
	}
	var err error
	w.nodes[name], err = startOn(t.Context(), t, w.network.Host(host), true, c, weir.Config{})
	require.NoError(t, err)
}

// sideGrants returns the units that each side admits of a fresh limit of 100 units, for each
// policy.
func (w *world) sideGrants(t *testing.T, sides ...[]string) map[weir.PartitionPolicy][]int {
	grants := make(map[weir.PartitionPolicy][]int)
	for _, policy := range []weir.PartitionPolicy{weir.MajorityShare, weir.FairShare, weir.FailClosed} {
		ls := w.limiters(t, weir.Limit{Name: policy.String(), Rate: 100, Per: time.Hour, Partition: policy})
		for _, side := range sides {
			grants[policy] = append(grants[policy], ask(t, ls, "key", 110, side...))
		}
	}
	return grants
}

// If another member answers at the address of a member, the former one is dead at once. The
// address must belong to only one member at a time.
func TestMemberAnsweringAtAnAddressReplacesTheFormer(t *testing.T) {
	t.Parallel()
	const vip = "vip.internal:7946"
	for _, c := range []struct {
		name   string
		played func(t *testing.T, w *world)
		sides  [][]string
		want   map[weir.PartitionPolicy][]int // of 100, by side
	}{
		{
			name: "it restarts",
			played: func(t *testing.T, w *world) {
				w.network.Host("b").Kill()
				w.launchAs(t, "b", "b", "")
				time.Sleep(time.Second / 2)
			},
			sides: [][]string{{"a", "b"}},
			want:  map[weir.PartitionPolicy][]int{weir.MajorityShare: {100}, weir.FairShare: {100}, weir.FailClosed: {100}},
		},
		{
			name: "another node of its host takes its port",
			played: func(t *testing.T, w *world) {
				w.network.Host("b").Kill()
				w.launchAs(t, "e", "b", "")
				time.Sleep(time.Second / 2)
			},
			sides: [][]string{{"a", "e"}},
			want:  map[weir.PartitionPolicy][]int{weir.MajorityShare: {100}, weir.FairShare: {100}, weir.FailClosed: {100}},
		},
		{
			name: "another advertises its address and does not listen there",
			played: func(t *testing.T, w *world) {
				w.network.Split([]string{"a", "d"}, []string{"b"})
				time.Sleep(10 * time.Second)
				w.launchAs(t, "d", "d", "10.0.0.2:7946")
				time.Sleep(30 * time.Second)
			},
			sides: [][]string{{"a"}, {"b"}},
			want:  map[weir.PartitionPolicy][]int{weir.MajorityShare: {50, 50}, weir.FairShare: {50, 50}, weir.FailClosed: {0, 0}},
		},
		{
			name: "a balancer shares its address with another",
			played: func(t *testing.T, w *world) {
				w.network.SetName("vip.internal", "d")
				w.launchAs(t, "d", "d", vip)
				w.network.SetName("vip.internal", "e")
				w.launchAs(t, "e", "e", vip)
				time.Sleep(10 * time.Second)
				w.network.SetName("vip.internal", "d")
				time.Sleep(10 * time.Second)
				w.network.SetName("vip.internal", "e")
				w.network.Split([]string{"a", "b", "e"}, []string{"d"})
				time.Sleep(30 * time.Second)
			},
			sides: [][]string{{"a", "b", "e"}, {"d"}},
			want:  map[weir.PartitionPolicy][]int{weir.MajorityShare: {100, 25}, weir.FairShare: {75, 25}, weir.FailClosed: {100, 0}},
		},
		{
			name: "it is frozen as its address is given to another",
			played: func(t *testing.T, w *world) {
				w.network.SetName("vip.internal", "d")
				w.launchAs(t, "d", "d", vip)
				time.Sleep(10 * time.Second)
				w.network.Host("d").Freeze()
				w.network.SetName("vip.internal", "e")
				w.launchAs(t, "e", "e", vip)
				time.Sleep(10 * time.Second)
				w.network.Split([]string{"a", "b", "e"}, []string{"d"})
				w.network.Host("d").Thaw()
				time.Sleep(5 * time.Second)
			},
			sides: [][]string{{"a", "b", "e"}, {"d"}},
			want:  map[weir.PartitionPolicy][]int{weir.MajorityShare: {100, 33}, weir.FairShare: {100, 33}, weir.FailClosed: {100, 0}},
		},
		{
			name: "a majority is cut off as its addresses are given to others",
			played: func(t *testing.T, w *world) {
				for i, name := range []string{"d", "e", "f"} {
					w.network.SetName(fmt.Sprint("vip", i), name)
					w.launchAs(t, name, name, fmt.Sprint("vip", i, ":7946"))
				}
				time.Sleep(10 * time.Second)
				w.network.Split([]string{"a", "b", "g", "h", "i"}, []string{"d", "e", "f"})
				for i, name := range []string{"g", "h", "i"} {
					w.network.SetName(fmt.Sprint("vip", i), name)
					w.launchAs(t, name, name, fmt.Sprint("vip", i, ":7946"))
				}
				time.Sleep(30 * time.Second)
			},
			sides: [][]string{{"a", "b", "g", "h", "i"}, {"d", "e", "f"}},
			want:  map[weir.PartitionPolicy][]int{weir.MajorityShare: {100, 100}, weir.FairShare: {100, 60}, weir.FailClosed: {100, 100}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if len(c.sides[0]) > 3 {
				full.Only(t, "the address that a balancer shares, where a side is cut off as well")
			}
			inBubble(t, func(t *testing.T) {
				w := emptyWorld([]string{"a", "b"}, true)
				for _, name := range hosts(9) {
					w.network.Host(name)
				}
				w.launchAs(t, "a", "a", "")
				w.launchAs(t, "b", "b", "")
				w.ready(t, "a", "b")
				c.played(t, w)
				require.Equal(t, c.want, w.sideGrants(t, c.sides...))
			})
		})
	}
}
