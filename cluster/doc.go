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
// # Who is in
//
// Gossip alone says who is in the roster: every member that is alive, or that
// died without saying goodbye and is not yet forgotten. How a member stands
// (joining, serving, leaving) it says itself, with [Cluster].Announce: over its
// connections first, and by gossip. [View] has all of it.
//
// Members that forgot another beyond a cut spread its tombstone once they hear it. It
// answers that with a greater epoch, and joins again. Until then, for 5 seconds at most,
// it stays in for those who hear it: they may have been forgotten with it, and hear of
// their own tombstones later.
//
// # Who is heard
//
// Gossip does not say who can be reached. For that, members ping each other over
// their connections, and pongs carry the table of who hears whom. Pings go every
// 300 ms, and every 100 ms while one has no pong; they are answered before any
// request that was read with them. Two members have two connections, one dialled by
// each. A ping says how long ago its sender had an answer from the receiver, so that
// either connection proves both ways.
//
// Slow is not gone. Three questions have an answer each:
//   - How long an ask waits, its caller says ([Peer].Ask).
//   - Whether the next one is sent: not to a member that has stalled, which is one that
//     has left an ask unanswered and has said nothing since then for 200 ms, or for the
//     mean of its round trips and four deviations (RFC 6298) if that is longer. Asks
//     return [ErrStalled] at once, until anything comes from it. This is known to the
//     node that asked, and to nobody else.
//   - Whether a member is heard: until the connection to it breaks, or 800 ms pass
//     without an answer on either connection. Every member learns of it with the next
//     pongs. Once unheard, a member is heard again by the pong of a ping that was sent
//     afterwards.
//
// A process that stood still must not take the others for silent. So of the time
// between two looks at a member, no more counts than was planned and 20 ms; and a look
// that comes later than that has a second one decide, since what has arrived meanwhile
// may not have been read (after Lifeguard, arXiv 1707.00788). Likewise, a process that
// notices 2 ms late that an ask's wait has passed looks once more at what has come. And
// while it handles what came from a member, that member is not silent.
//
// A member whose process ends is unheard at once, as the system resets its connections.
// One that is frozen, and one whose whole machine is gone, is found out by silence.
//
// On Linux from 6.15 on, connections resend what was lost 10 ms after its round trip,
// and go on at that pace while little is under way. Elsewhere it takes 200 ms, then
// 400.
//
// # Other regions
//
// Members are of one region: gossip, the roster and who hears whom stay in it.
// [Config].Regions names others, by addresses that lead to any of their nodes, and
// [Cluster].Region asks there. Each node keeps one connection to one node of each,
// on the same port and with the same handshake, Seed and TLS, and with the secrets of
// RegionSecrets or, where there are none, the same Secrets. In the handshake it says
// where it comes from and which region it wants to reach. If the address leads
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
// Secrets encrypts gossip, authenticates members to each other, and seals what they
// say over peer connections: what was changed on its way ends the connection. Without
// it everyone who reaches the port can join, or ask as a node of another region, so that
// it is required wherever other machines reach the port, unless Insecure is set. Each
// of these uses has a key of its own, derived from the secret. To rotate a secret,
// give all members [old, new], then [new, old], then [new]: members in adjacent stages
// understand each other. TLS encrypts and authenticates the TCP side, in the place of
// the sealing, with forward secrecy, and leaves UDP as it is, so use it together with
// Secrets.
//
// What a node says of itself is held against what it proves itself with. With
// RegionSecrets that is a secret of two regions: it is of the other of them, whatever it
// says, and no member. With CertificateNames it is a certificate, which says region and
// name; streams of gossip are then of members' certificates alone. A node that is not
// what it says is refused, and counted as "identity". Where both are unset, whoever holds a
// secret, or a certificate that TLS accepts, can say that it is of any region.
//
// What comes is bounded before memory is taken for it, also where it comes from
// members:
//   - connections that have not said who they are, streams of gossip among them: 1,024,
//     and 128 of one IPv4 address or IPv6 /64, less where the process may have few file
//     descriptors (an eighth of them at most). The oldest goes first, and streams of
//     gossip last. Those that have: 8,192, or half of the descriptors;
//   - streams of gossip: 64, each one message of 8 MiB, and 16 MiB in all. One that
//     claims more than 2,048 nodes, or 4 MiB of state, is closed before memberlist
//     reads it;
//   - packets of gossip: 2 KiB, none compressed, 8,192 messages in a second, of which
//     512 have this member send something;
//   - members: 1,024, the dead among them until they are forgotten; of those that this
//     node has not known 512 may come at once, and 32 in each second after that. Of
//     members that have never been met 64 are dialled at a time.
//
// What is above is dropped, counted in [Stats].Refused and logged.
package cluster
