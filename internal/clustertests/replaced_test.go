package clustertests

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/testenv"
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

// requireSideGrants requires that each side admits the given number of units of a fresh limit of 100
// units, under each of the three policies. The first node of the first side owns the key, so that it has
// the first unit of a remainder.
func (w *world) requireSideGrants(t *testing.T, majority, fair, closed []int, sides ...[]string) {
	t.Helper()
	for i, policy := range []weir.PartitionPolicy{weir.MajorityShare, weir.FairShare, weir.FailClosed} {
		ls := w.limiters(t, weir.Limit{Name: policy.String(), Rate: 100, Per: time.Hour, Partition: policy})
		var grants []int
		key := keyOf(t, ls[sides[0][0]])
		for _, side := range sides {
			grants = append(grants, ask(t, ls, key, 110, side...))
		}
		require.Equal(t, [][]int{majority, fair, closed}[i], grants, policy)
	}
}

// If another member answers at the address of a member, the former member is dead at once. The
// address must belong to only one member at a time.
func TestMemberAnsweringAtAddressReplacesFormerMember(t *testing.T) {
	t.Parallel()
	const vip = "vip.internal:7946"
	for _, c := range []struct {
		name                   string
		sides                  [][]string
		majority, fair, closed []int // what each side grants of 100
		played                 func(t *testing.T, w *world)
	}{
		{"it restarts", [][]string{{"a", "b"}}, []int{100}, []int{100}, []int{100}, func(t *testing.T, w *world) {
			w.network.Host("b").Kill()
			w.launchAs(t, "b", "b", "")
			time.Sleep(time.Second / 2)
		}},
		{"another node of its host takes its port",
			[][]string{{"a", "e"}}, []int{100}, []int{100}, []int{100}, func(t *testing.T, w *world) {
				w.network.Host("b").Kill()
				w.launchAs(t, "e", "b", "")
				time.Sleep(time.Second / 2)
			}},
		{"another advertises its address and does not listen there",
			[][]string{{"a"}, {"b"}}, []int{50, 50}, []int{50, 50}, []int{0, 0}, func(t *testing.T, w *world) {
				w.network.Split([]string{"a", "d"}, []string{"b"})
				time.Sleep(10 * time.Second)
				w.launchAs(t, "d", "d", "10.0.0.2:7946")
				time.Sleep(30 * time.Second)
			}},
		{"a balancer shares its address with another",
			[][]string{{"a", "b", "e"}, {"d"}}, []int{100, 25}, []int{75, 25}, []int{100, 0}, func(t *testing.T, w *world) {
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
			}},
		{"it is frozen as its address is given to another",
			[][]string{{"a", "b", "e"}, {"d"}}, []int{100, 33}, []int{100, 33}, []int{100, 0}, func(t *testing.T, w *world) {
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
			}},
		{"a majority is cut off as its addresses are given to others",
			[][]string{{"a", "b", "g", "h", "i"}, {"d", "e", "f"}}, []int{100, 100}, []int{100, 60}, []int{100, 100}, func(t *testing.T, w *world) {
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
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if len(c.sides[0]) > 3 {
				testenv.SkipUnlessFull(t, "the address that a balancer shares, where a side is cut off as well")
			}
			inBubble(t, func(t *testing.T) {
				w := emptyWorld([]string{"a", "b"}, true)
				addHosts(w.network, hosts(9)...)
				w.launchAs(t, "a", "a", "")
				w.launchAs(t, "b", "b", "")
				w.ready(t, "a", "b")
				c.played(t, w)
				w.requireSideGrants(t, c.majority, c.fair, c.closed, c.sides...)
			})
		})
	}
}
