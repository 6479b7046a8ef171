// Package weirtest runs clusters in memory, for tests: a [Cluster] of nodes on a
// [Network] whose links fail at the will of the test.
//
//	func TestExportsDuringASplit(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			c, err := weirtest.NewCluster(t.Context(), weirtest.Options{})
//			if err != nil {
//				t.Fatal(err)
//			}
//			defer c.Close()
//			c.Cut([]string{"a", "b"}, []string{"c"})
//			time.Sleep(time.Hour) // takes no time
//			limiter, err := c.Node("c").Limiter(exports)
//			...
//		})
//	}
//
// A Network has hosts, and links between them with latency, jitter, loss and duplicates.
// Links can be cut and healed, and hosts can be frozen. A node can use a host in two
// ways. [Host.Network] has ports and streams, for the code that a node runs in
// production: real memberlist and real frames. [Host.Cluster] is a [cluster.Cluster] that
// sends whole messages and simulates membership, for long runs of many nodes. A Cluster
// supports both.
//
// Hosts may belong to different regions ([Options].Regions). Nodes of different regions
// do not gossip. They ask each other over slower links (Options.WAN), which can be cut
// like any other link.
//
// In a testing/synctest bubble, time is virtual: hours pass in seconds, and no machine is
// too slow for a timeout. Outside a bubble, the same code runs in real time.
//
// The fate of each packet depends only on the seed. With simulated membership, a run
// in a bubble replays exactly if no other influence determines the order of goroutines
// within an instant: runtime.GOMAXPROCS is 1 (which is also faster), the garbage
// collector is held (debug.SetGCPercent(-1), with runtime.GC after synctest.Wait now and
// then), the race detector is off, and two goroutines that use one link in the same
// instant keep their order. Requests to one member are an exception: the package orders
// the requests of one instant itself.
package weirtest
