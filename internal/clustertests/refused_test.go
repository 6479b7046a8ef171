package clustertests

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

// If Config.ForgetRefused is set, a side has the whole limit once the hosts of all missing
// members have refused connections, because this proves that the processes have ended. The nodes
// by which the side is smaller than Expect still count as missing. Silence proves nothing, and a
// FailClosed limit ignores the proof. If a firewall refuses the connections instead, each side has
// the whole limit.
func TestSideOfEndedMembersHasWholeLimit(t *testing.T) {
	t.Parallel()
	kill := func(names ...string) func(w *world) {
		return func(w *world) {
			for _, name := range names {
				w.network.Host(name).Kill()
			}
		}
	}
	reject := func(here, there []string) func(w *world) {
		return func(w *world) {
			for _, a := range here {
				for _, b := range there {
					w.network.Reject(a, b)
				}
			}
		}
	}
	cut := func(sides ...[]string) func(w *world) {
		return func(w *world) { w.network.Split(sides...) }
	}
	both := func(faults ...func(w *world)) func(w *world) {
		return func(w *world) {
			for _, fault := range faults {
				fault(w)
			}
		}
	}
	for _, c := range []struct {
		name                   string
		nodes, expect          int
		fault                  func(w *world)
		sides                  [][]string
		majority, fair, closed []int // what each side grants of 100
	}{
		{"one of two ends", 2, 0, kill("b"), [][]string{{"a"}}, []int{100}, []int{100}, []int{0}},
		{"one of an expected two ends", 2, 2, kill("b"), [][]string{{"a"}}, []int{50}, []int{50}, []int{0}},
		{"one of three ends", 3, 0, kill("b"), [][]string{{"a", "c"}}, []int{100}, []int{100}, []int{100}},
		{"two of three end", 3, 0, kill("b", "c"), [][]string{{"a"}}, []int{100}, []int{100}, []int{0}},
		{"two of an expected three end", 3, 3, kill("b", "c"), [][]string{{"a"}}, []int{33}, []int{34}, []int{0}}, // as if b and c were cut off
		{"three of five end, and four are expected", 5, 4, kill("b", "c", "d"), [][]string{{"a", "e"}}, []int{50}, []int{50}, []int{0}},
		{"two are cut off from each other", 2, 0, cut([]string{"a"}, []string{"b"}), [][]string{{"a"}, {"b"}}, []int{50, 50}, []int{50, 50}, []int{0, 0}},
		{"two of four end and one is cut off", 4, 0, both(kill("b", "d"), cut([]string{"a"}, []string{"c"})), [][]string{{"a"}, {"c"}}, []int{25, 25}, []int{25, 25}, []int{0, 0}},
		{
			"two are refused by one side's member and silent to the other", 4, 0,
			both(reject([]string{"a"}, []string{"b", "d"}), cut([]string{"c"}, []string{"b", "d"})),
			[][]string{{"a", "c"}, {"b", "d"}}, []int{50, 50}, []int{50, 50}, []int{0, 0},
		},
		{"a firewall resets between two", 2, 0, reject([]string{"a"}, []string{"b"}), [][]string{{"a"}, {"b"}}, []int{100, 100}, []int{100, 100}, []int{0, 0}},
		{"a firewall resets between two and three", 5, 0, reject([]string{"a", "b"}, []string{"c", "d", "e"}), [][]string{{"a", "b"}, {"c", "d", "e"}}, []int{100, 100}, []int{100, 100}, []int{0, 100}},
		{"a firewall resets a link that another member replaces", 3, 0, reject([]string{"a"}, []string{"b"}), [][]string{{"a", "b", "c"}}, []int{100}, []int{100}, []int{100}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorlds(t, c.nodes, weir.Config{ForgetRefused: true, Expect: c.expect}, func(t *testing.T, w *world) {
				c.fault(w)
				time.Sleep(2 * time.Second)
				w.requireSideGrants(t, c.majority, c.fair, c.closed, c.sides...)
			})
		})
	}
}

// The marker of a settled reservation with a text is a unit of a FailClosed limit. With another
// policy, the same reservation could be settled on each side of a split if a firewall refuses
// connections in place of the members.
func TestSurvivorDoesNotSettleCarriedReservation(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfg := seeded
		cfg.ForgetRefused = true
		w := newWorldOf(t, 2, false, cfg)
		ls := w.limiters(t, weir.Limit{Name: "tokens", Rate: 1000, Per: time.Hour})
		v := reserve(t, ls["a"], keyOf(t, ls["a"]), 100)
		require.NotEmpty(t, v.Text())
		time.Sleep(300 * time.Millisecond)
		w.network.Host("b").Kill()
		time.Sleep(5 * time.Second)
		require.EqualValues(t, 1, ask(t, ls, "another", 1, "a"))
		require.ErrorIs(t, v.Settle(t.Context(), 30), weir.ErrUnavailable)
	})
}

// pairForgets is Config.Forget of both nodes.
const pairForgets = 30 * time.Second

// pairOfReplicas is a cluster of two nodes, one of which is about to fail.
type pairOfReplicas struct {
	t       *testing.T
	cluster *weirtest.Cluster
	limits  [2]weir.Limit
	began   time.Time
}

// grants returns the limits that apply on a node for 100 units a minute and for 1 unit a second.
func (p *pairOfReplicas) grants(name string) string {
	var granted []string
	for _, limit := range p.limits {
		l, err := p.cluster.Node(name).Limiter(limit)
		require.NoError(p.t, err)
		d, err := l.Peek(p.t.Context(), "key")
		require.NoError(p.t, err)
		granted = append(granted, fmt.Sprint(d.Limit))
	}
	return strings.Join(granted, ", ")
}

// recovers kills node b, and returns the time at which node a has the whole limit, in the words
// of the table. If start is not empty, a node is started on that host after 10 s.
func (p *pairOfReplicas) recovers(start string) string {
	p.cluster.Kill("b")
	p.began = time.Now()
	for time.Since(p.began) < 2*pairForgets {
		time.Sleep(250 * time.Millisecond)
		full := p.grants("a") == "100, 1"
		switch at := time.Since(p.began); {
		case full && at < 2*time.Second:
			return "at once"
		case full && at > pairForgets:
			return "after `Forget`"
		case full:
			return "with it"
		case start != "" && at >= 10*time.Second:
			_, err := p.cluster.Start(p.t.Context(), start)
			require.NoError(p.t, err)
			start = ""
		}
	}
	return "never"
}

// The nodes grant the units in the table of docs/partitions.md. The document does not
// repeat a row that has a name in the field like. Instead, it states that the row equals
// the row with that name, except that FailClosed grants no units where MajorityShare
// grants 50.
func TestTwoReplicasGrantAsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/partitions.md")
	require.NoError(t, err)
	_, documented, found := strings.Cut(string(text), "<!-- two replicas -->\n")
	require.True(t, found)
	documented, _, _ = strings.Cut(documented, "<!-- end -->")
	want := strings.Split(strings.TrimSpace(documented), "\n")[2:]
	var got []string
	measured := make(map[string]string) // by name
	for _, row := range []struct {
		name   string
		like   string
		policy weir.PartitionPolicy
		config weir.Config
	}{
		{"`MajorityShare`, 0", "", weir.MajorityShare, weir.Config{}},
		{"`MajorityShare`, 2", "", weir.MajorityShare, weir.Config{Expect: 2}},
		{"`MajorityShare`, 0, and `ForgetRefused`", "", weir.MajorityShare, weir.Config{ForgetRefused: true}},
		{"", "`MajorityShare`, 2", weir.MajorityShare, weir.Config{Expect: 2, ForgetRefused: true}},
		{"", "`MajorityShare`, 0", weir.FailClosed, weir.Config{ForgetRefused: true}},
		{"", "`MajorityShare`, 2", weir.FailClosed, weir.Config{Expect: 2, ForgetRefused: true}},
		{"`FailOpen`", "", weir.FailOpen, weir.Config{}},
	} {
		cell := func(measure func(p *pairOfReplicas) string) (result string) {
			synctest.Test(t, func(t *testing.T) {
				config := row.config
				config.Logger, config.Forget = quiet, pairForgets
				c, err := weirtest.NewCluster(t.Context(), weirtest.Options{Nodes: []string{"a", "b"}, Config: config})
				require.NoError(t, err)
				time.Sleep(10 * time.Second)
				p := &pairOfReplicas{t: t, cluster: c}
				p.limits[0] = weir.Limit{Name: "a minute", Rate: 100, Per: time.Minute, Partition: row.policy}
				p.limits[1] = weir.Limit{Name: "a second", Rate: 1, Per: time.Second, Partition: row.policy}
				result = measure(p)
				require.NoError(t, c.Close())
			})
			return result
		}
		recovers := func(start string) string {
			return cell(func(p *pairOfReplicas) string { return p.recovers(start) })
		}
		apart := func(part func(n *weirtest.Network)) string {
			return cell(func(p *pairOfReplicas) string {
				part(p.cluster.Network())
				time.Sleep(5 * time.Second)
				return p.grants("a") + " + " + p.grants("b")
			})
		}
		cells := strings.Join([]string{
			cell(func(p *pairOfReplicas) string {
				p.cluster.Kill("b")
				time.Sleep(2 * time.Second)
				return p.grants("a")
			}),
			recovers("b"), recovers("c"), recovers(""),
			apart(func(n *weirtest.Network) { n.Split([]string{"a"}, []string{"b"}) }),
			apart(func(n *weirtest.Network) { n.Reject("a", "b") }),
		}, " | ")
		if row.like != "" {
			expected := measured[row.like]
			if row.policy == weir.FailClosed {
				expected = strings.ReplaceAll(expected, "50", "0")
			}
			require.Equal(t, expected, cells, "%v %+v", row.policy, row.config)
			continue
		}
		measured[row.name] = cells
		got = append(got, "| "+row.name+" | "+cells+" |")
	}
	require.Equal(t, want, got)
}
