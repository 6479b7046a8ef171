// Package weirtest is a network in memory, and clusters on it, for tests.
//
// A [Network] has hosts, and links between them with latency, jitter and loss
// that can be cut, frozen and healed. What happens to a packet depends on the
// network's seed alone. In a testing/synctest bubble hours of it pass in
// milliseconds, and a run whose events never share an instant replays exactly;
// outside a bubble the same code runs in real time.
//
// A host offers two ways onto the network. [Host.Network] has ports and
// streams, for the code that a node runs in production: real memberlist, real
// frames. [Host.Cluster] is a [cluster.Cluster] that passes whole messages and
// simulates membership, for long runs of many nodes.
//
// A weir.Node runs on a host whose Host.Cluster is its Config.Cluster; with an
// empty [cluster.Config] it finds the nodes on all other hosts of the network.
package weirtest
