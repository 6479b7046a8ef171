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

// The nodes grant the units in the table of docs/partitions.md.
func TestTwoReplicasGrantAsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/partitions.md")
	require.NoError(t, err)
	_, documented, found := strings.Cut(string(text), "<!-- two replicas -->\n")
	require.True(t, found)
	documented, _, _ = strings.Cut(documented, "<!-- end -->")
	want := strings.Split(strings.TrimSpace(documented), "\n")[2:]
	var got []string
	for _, row := range []struct {
		name   string
		policy weir.PartitionPolicy
		config weir.Config
	}{
		{"`MajorityShare`, 0", weir.MajorityShare, weir.Config{}},
		{"`MajorityShare`, 2", weir.MajorityShare, weir.Config{Expect: 2}},
		{"`MajorityShare`, 0, and `ForgetRefused`", weir.MajorityShare, weir.Config{ForgetRefused: true}},
		{"`MajorityShare`, 2, and `ForgetRefused`", weir.MajorityShare, weir.Config{Expect: 2, ForgetRefused: true}},
		{"`FailClosed`, 0", weir.FailClosed, weir.Config{ForgetRefused: true}},
		{"`FailClosed`, 2", weir.FailClosed, weir.Config{Expect: 2, ForgetRefused: true}},
		{"`FailOpen`", weir.FailOpen, weir.Config{}},
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
		got = append(got, "| "+strings.Join([]string{
			row.name,
			cell(func(p *pairOfReplicas) string {
				p.cluster.Kill("b")
				time.Sleep(2 * time.Second)
				return p.grants("a")
			}),
			recovers("b"), recovers("c"), recovers(""),
			apart(func(n *weirtest.Network) { n.Split([]string{"a"}, []string{"b"}) }),
			apart(func(n *weirtest.Network) { n.Reject("a", "b") }),
		}, " | ")+" |")
	}
	require.Equal(t, want, got)
}
