// Package weirtest runs clusters in memory, for tests: a [Cluster] of nodes on a
// [Network] whose links fail when the test says so.
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
// A Network has hosts and links between hosts. Links have latency, jitter, loss and
// duplicates. A test can cut and heal links, and freeze hosts. A node can use a host in
// two ways. [Host.Network] has ports and streams, for the code that a node runs in
// production, which includes memberlist and the real frames. [Host.Cluster] is a
// [cluster.Cluster] that sends whole messages and simulates membership, for long runs of
// many nodes. A Cluster supports both.
//
// Hosts may belong to different regions ([Options].Regions). Nodes of different regions
// do not gossip. They send requests to each other over slower links (Options.WAN). A test
// can cut these links too.
//
// In a testing/synctest bubble, time is virtual: hours pass in seconds, and no machine is
// too slow for a timeout. Outside a bubble, the same code runs in real time.
//
// The fate of each packet depends only on the seed. With simulated membership, a run in a
// bubble replays exactly if no other influence determines the order of goroutines within
// an instant: runtime.GOMAXPROCS is 1 (which is also faster), the garbage collector is
// held (debug.SetGCPercent(-1), with runtime.GC after synctest.Wait now and then), the
// race detector is off, and two goroutines that use the same link in the same instant keep
// their order. Requests to the same member are an exception, because the package sorts
// the requests of each instant.
package weirtest
