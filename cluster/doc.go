// Package cluster finds the members of a cluster, detects which of them answer, and
// carries requests between them. It moves bytes and knows nothing of limits.
//
// The package belongs to the engine of weir: what it exports may change in any release.
// A service needs [Cluster] alone, the type of weir.Config.Cluster.
//
// A [Cluster] comes in two kinds here: [NewGossip] finds the other members over
// the network, and [NewSolo] is a cluster of one that opens no port. Package
// weirtest has a third, simulated. Package clustertest tests all of them alike.
//
// # One port
//
// A member listens on one port, TCP and UDP. UDP carries gossip
// (hashicorp/memberlist, in package gossip). On TCP the first byte of a connection hands it to
// gossip or to the requests of other members. Any other connection is closed and
// counted in [Stats].Refused. With TLS configured, the first byte precedes a
// mutual TLS handshake.
//
// # Versions
//
// Both ends of a connection state the versions of the protocol that they speak, and use
// the newest common one ([Protocol]). A release speaks [Version] and the version before
// it. docs/upgrades.md states what a change of the wire has to observe.
//
// # The roster
//
// Gossip alone decides which members the roster has: every member that is alive, or that
// died without a goodbye and is not yet forgotten. A member announces its own state
// (joining, serving, leaving) with [Cluster].Announce: over its connections first, and by
// gossip. [View] has all of it.
//
// Members that forgot another beyond a cut spread its tombstone once they hear it. It
// answers with a greater epoch, and joins again. Until then, for 5 seconds at most, it
// stays in the roster of the members that hear it: they may have been forgotten with it,
// and receive their own tombstones later.
//
// # Failure detection
//
// Gossip does not tell which members can be reached. For that (package detect), a node pings the
// members that it watches: all members of a cluster of up to 9, and about eight of a larger one.
// Pings go every 300 ms, and every 100 ms while a pong is due. They are answered before any
// request that was read with them. Two members that watch each other have two connections, one
// dialled by each. A ping states how long ago its sender had an answer from the receiver, so that
// either connection proves both ways.
//
// The row of a node lists the watched members to which it is connected. A node sends rows that have
// changed to the members that it watches, at once and then every 50 ms, and a new connection first
// carries all rows. A member that is not watched is presumed to be connected while the side of this
// node reaches it, and the first request has the node dial it (ondemand.go).
//
// A slow member is not a missing one. Three questions have an answer each:
//   - How long an ask waits: its caller decides ([Peer].Ask).
//   - Whether the next one is sent: not to a stalled member. It has left an ask
//     unanswered and has sent nothing since then for 200 ms, or for the mean of its round
//     trips and four deviations (RFC 6298) if that is longer. Asks return [ErrStalled] at
//     once, until anything comes from it. Only the node that asked acts on this.
//   - Whether a member is connected: until the connection to it breaks, or 800 ms pass
//     without an answer on either connection. Every member learns of a watched member's by
//     the rows. Once disconnected, a member is connected again by the pong of a ping that was sent
//     afterwards.
//
// A process that stood still must not take the others for silent. So of the time
// between two looks at a member, no more counts than was planned and 20 ms. A look
// that comes later than that has a second one decide, since what has arrived meanwhile
// may not have been read (after Lifeguard, arXiv 1707.00788). Likewise, a process that
// notices 2 ms late that an ask's wait has passed looks once more at what has come, and
// one that notices late that a connection has brought nothing reads it once more. While
// it handles what came from a member, that member is not silent.
//
// A member whose process ends is disconnected at once, as the system resets its connections.
// A frozen process, or a whole machine that is gone, is found out by silence.
//
// On Linux from 6.15 on, connections resend what was lost 10 ms after its round trip,
// and go on at that pace while little is under way. Elsewhere it takes 200 ms, then
// 400.
//
// # Other regions
//
// Gossip, the roster and connectivity stay within a region. [Config].Regions names other
// regions, by addresses that lead to any of their nodes, and [Cluster].Region asks there.
// Each node keeps one connection to one node of each, on the same port and with the same
// handshake, Seed and TLS, and with the secrets of RegionSecrets or, where there are
// none, the same Secrets. The hello states the node's own region and the one that it
// wants to reach. If the address leads to another, both sides refuse, and log it. The
// connection carries requests and pings, and nothing else is accepted: a node of another
// region can ask, but it is no member, is not connected, and learns nothing of the roster.
//
// A node of the other region is chosen at random among all that the names resolve
// to at that moment. It is pinged once a second. One that answers nothing for 3 s,
// leaves or hangs up is left for another, those that failed last. Attempts follow
// each other after 100 ms, and while they fail after up to 10 s.
//
// # Security
//
// Secrets encrypt gossip, and put peer connections under TLS 1.3, with a key pair that is
// derived from a secret: both sides present it, and compare the public key of the other side
// with it. There are no authorities, names or clocks in that. A change on the way ends the
// connection, and a secret that leaks opens no recorded one. Without
// secrets anybody that reaches the port can join, or ask as a node of another region. So
// they are required wherever other machines reach the port. Each
// of these uses has a key of its own, derived from the secret. To rotate a secret,
// give all members [old, new], then [new, old], then [new]: members in adjacent stages
// connect. Config.TLS puts all of TCP under TLS by certificates instead, in which both sides
// also prove a common secret, and leaves UDP as it is, so use it together with
// Secrets.
//
// Records are sealed by TLS_AES_128_GCM_SHA256, and by TLS_CHACHA20_POLY1305_SHA256 if a side
// has no instructions for AES.
//
// What a node states of itself is compared with its proof. With RegionSecrets that is a
// secret of two regions: the node is of the other of them, whatever it states, and no
// member. With CertificateNames it is a certificate, which has region and name; streams
// of gossip then need a member's certificate. A node that differs from its proof is
// refused, and counted as "identity". Where both are unset, a holder of a secret, or of a
// certificate that TLS accepts, can state any region.
//
// Input is bounded before memory is allocated for it, also where it comes from
// members:
//   - connections that have not identified themselves, streams of gossip among them:
//     1,024, less where the process may have few file descriptors (an eighth of them at
//     most). The oldest of the IPv4 address or IPv6 /64 with most goes first, and streams of
//     gossip last. Identified connections: 8,192, or half of the descriptors;
//   - streams of gossip: 64, each one message of 8 MiB, and 16 MiB in all. One that
//     claims more than 8,192 nodes, or 4 MiB of state, is closed before memberlist
//     reads it;
//   - packets of gossip: 2 KiB, none compressed, 8,192 messages in a second, of which
//     512 have this member send something;
//   - members: 4,096, the dead among them until they are forgotten. Of members that this
//     node has not known 512 may come at once, and 32 in each second after that. Of
//     members that have never been met 64 are dialled at a time.
//
// What exceeds a bound is dropped, counted in [Stats].Refused and logged.
package cluster
