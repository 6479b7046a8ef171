package clustertest_test

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/cluster/clustertest"
)

// TestMain lets tests on real sockets wait side by side: they do little else.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "8")
	os.Exit(m.Run())
}

func TestSolo(t *testing.T) {
	clustertest.Run(t, func(t *testing.T, test func(*testing.T, clustertest.World)) {
		test(t, clustertest.World{Size: 1, New: func(int) cluster.Cluster { return cluster.NewSolo("alone", "r") }})
	})
}

func TestGossipOnLoopback(t *testing.T) {
	clustertest.Run(t, func(t *testing.T, test func(*testing.T, clustertest.World)) {
		t.Parallel()
		var first cluster.Cluster
		test(t, clustertest.World{Size: 3, New: func(i int) cluster.Cluster {
			c := cluster.Config{
				Name: fmt.Sprintf("node%d-1", i), Bind: "127.0.0.1:0", Region: "r",
				Logger: slog.New(slog.DiscardHandler),
			}
			if i > 0 {
				c.Join = []string{first.View().Members[0].Addr}
			}
			made := cluster.NewGossip(c)
			if i == 0 {
				first = made
			}
			return made
		}})
	})
}
