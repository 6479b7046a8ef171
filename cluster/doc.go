// Package cluster says who is in a cluster, who is heard, and carries requests
// between its members. It moves bytes and knows nothing of limits.
//
// A [Cluster] comes in two kinds here: [NewGossip] finds the other members over
// the network, and [NewSolo] is a cluster of one that opens no port. Package
// weirtest has a third, simulated.
//
// # One port
//
// A member listens on one port, TCP and UDP. UDP carries gossip
// (hashicorp/memberlist). On TCP the first byte of a connection hands it to
// gossip or to the requests of other members; anything else is closed and
// counted in [Stats].Refused. With TLS configured, the first byte comes after a
// mutual TLS handshake.
//
// # Who is in, and who is heard
//
// Gossip alone says who is in the roster: every member that is alive, or that
// died without saying goodbye and is not yet forgotten. It does not say who can
// be reached: for that members ping each other over their connections, and tell
// each other what they hear. How a member stands (joining, serving, leaving) it
// says itself, with [Cluster].Announce: over its connections first, and by gossip.
// [View] has all of it.
//
// # Other regions
//
// Members are of one region: gossip, the roster and who hears whom stay in it.
// [Config].Regions names others, by addresses that lead to any of their nodes, and
// [Cluster].Region asks there. Each node keeps one connection to one node of each,
// on the same port and with the same handshake, Seed, Secrets and TLS, in which it
// says where it comes from and which region it wants to reach. If the address leads
// to another, both sides refuse and say so. Over it come requests and pings, and
// nothing else is taken in: a node of another region can ask, but it is no member,
// is not heard, and learns nothing of who is.
//
// A node of the other region is chosen at random among all that the names resolve
// to at that moment. It is pinged once a second; one that answers nothing for 3 s,
// leaves or hangs up is left for another, those that failed last. Attempts follow
// each other after 100 ms, and while they fail after up to 10 s.
//
// # Security
//
// Secrets encrypts UDP gossip and authenticates members to each other; without
// it, everyone who reaches the port can join, or ask as a node of another region.
// To rotate a secret, give all
// members [old, new], then [new, old], then [new]: members in adjacent stages
// understand each other. TLS encrypts and authenticates the TCP side and leaves
// UDP as it is, so use it together with Secrets.
package cluster
