// Package weirtest is clusters in memory, for tests: a [Cluster] of nodes, and a
// [Network] below it whose links fail as one likes.
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
// A Network has hosts, and links between them with latency, jitter, loss and
// duplicates that can be cut, frozen and healed. A host offers two ways onto it.
// [Host.Network] has ports and streams, for the code that a node runs in
// production: real memberlist, real frames. [Host.Cluster] is a
// [cluster.Cluster] that passes whole messages and simulates membership, for
// long runs of many nodes. A Cluster runs on either.
//
// Hosts may be of different regions ([Options].Regions): then they do not gossip,
// and their nodes ask each other over links that are slower (Options.WAN) and can be
// cut like any other.
//
// In a testing/synctest bubble time is virtual: hours of it pass in seconds, and
// no machine is too slow for a timeout. Outside a bubble the same code runs in
// real time.
//
// What happens to a packet depends on the seed alone. With simulated membership
// a run in a bubble replays exactly if nothing else decides who goes first in an
// instant: runtime.GOMAXPROCS is 1 (which is faster, too), the garbage collector
// is held (debug.SetGCPercent(-1), and runtime.GC after synctest.Wait now and
// then), the race detector is off, and two goroutines that use one link in one
// instant do not change places. Requests to one member do not count: those of one
// instant have an order of their own.
package weirtest
