package weirtest_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/cluster/clustertest"
	"github.com/weir-go/weir/weirtest"
)

func TestSimulatedClusterConforms(t *testing.T) {
	clustertest.Run(t, func(t *testing.T, test func(*testing.T, clustertest.World)) {
		synctest.Test(t, func(t *testing.T) {
			n := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond, Jitter: time.Millisecond})
			test(t, clustertest.World{Size: 3, New: func(i int) cluster.Cluster {
				return n.Host("host" + strconv.Itoa(i)).Cluster(cluster.Config{Region: "r"})
			}, Freeze: func(i int) func() {
				h := n.Host("host" + strconv.Itoa(i))
				h.Freeze()
				return h.Thaw
			}})
		})
	})
}
