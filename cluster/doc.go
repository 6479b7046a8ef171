// Package cluster finds the members of a cluster, detects which of them answer, and
// carries requests between them. It carries bytes and does not interpret limits.
//
// The package belongs to the engine of weir: its exported names may change in any release.
// A service needs only [Cluster], the type of weir.Config.Cluster.
//
// The package has two implementations of [Cluster]: [NewGossip] finds the other members over the
// network, and [NewSolo] is a cluster of a single node, without a port. Package weirtest has a third,
// simulated implementation. Package clustertest tests all of them.
//
// # One port
//
// A member listens on a single port, TCP and UDP. UDP carries gossip (hashicorp/memberlist, in package
// gossip). On TCP, the first byte of a connection states whether it carries gossip or requests of other
// nodes. A connection with a different first byte is closed and counted in [Stats].Refused. With TLS
// configured, the first byte precedes a mutual TLS handshake.
//
// # Versions
//
// Both ends of a connection state the versions of the protocol that they speak, and use
// the newest common version ([Protocol]). A release speaks [Version], which has the rules for changes
// of the wire format, and the previous version.
//
// # The roster
//
// Gossip decides which members the roster has: every member that is alive, or that died without a
// goodbye and is not yet forgotten. A dead or missing member is also removed when another member
// answers at its address, and a dead member by [Cluster].Forget. A member announces whether it is
// joining, serving or leaving with [Cluster].Announce: over connections first, and by gossip. [View]
// has the roster and these states. In a cluster of more than 9 members, each member passes on the records
// that are new to it over the connections to the members that it watches, because gossip has a queue of many
// seconds after hundreds of members have started. For the same reason, a death that gossip reports counts
// only once the member is not on the side of this node.
//
// If one side of a partition forgets a member of the other side, it spreads a tombstone of this member
// once gossip reaches the member again. The member answers with a greater epoch, and joins again. Until
// then, for some 5 seconds at most, the member stays in the rosters of its own side, because the other
// members of its side may have been forgotten too, and receive their own tombstones later.
//
// # Failure detection
//
// Gossip does not show which members can be reached. For that (package detect), a node pings the
// members that it watches: all members in a cluster of up to 9, and about eight in a larger cluster.
// Pings go every 300 ms, and every 100 ms once a pong is missing at the time of the next ping. They are
// answered before any request that was read with them. Two members that watch each other have two
// connections: each member dials one of them. A ping states how long ago the sender had an answer from
// the receiver, so that either connection proves both directions.
//
// The row of a node lists the watched members to which it is connected. A node sends rows that have
// changed to the members that it watches: at once, but to each member at most every 50 ms, and less
// often in a cluster of more than 250 members. Over a new connection it sends all rows. A member that is not watched is presumed to be connected while the rows
// show the member on the side of the node, and no request to it has failed. The first request makes
// the node dial the member (ondemand.go).
//
// A slow member is not a missing member. Three decisions are separate:
//   - How long an ask waits. The caller decides ([Peer].Ask).
//   - Whether the next ask is sent. A node sends no asks to a stalled member. A member has stalled if it
//     leaves an ask unanswered, and sends no frame after the ask for 200 ms, or for the mean of the
//     round trips and four deviations (RFC 6298) if that is longer. A member that is not watched has
//     also stalled if opening or waking the connection takes longer than 200 ms. Asks return
//     [ErrStalled] at once, until a frame arrives. Only the asking node acts on a stall.
//   - Whether a member is connected. A connected member stays so until the connection to it breaks or
//     cannot be opened, or 800 ms pass without an answer on either connection. Every member learns by
//     the rows whether a watched member is connected. A disconnected member is connected again once it
//     answers a ping that was sent after the member was disconnected.
//
// The 200 ms and the 800 ms are longer by the scheduling delay of this process or of the member,
// whichever is greater, if that is 20 ms or more: at most by a second.
//
// A process that was suspended must not take other members for silent. So the time between two looks at
// a member counts only up to the planned time and 20 ms. If a look is later than that, a second look
// decides, because frames that arrived meanwhile may not have been read (after Lifeguard, arXiv
// 1707.00788). The same applies to the wait of an ask: if the process notices the end of the wait more
// than 2 ms late, it looks once more for an answer. If the process notices late that no frame has
// arrived over a connection, it reads once more. While a process handles the frames of a member, that
// member is not silent.
//
// A member whose process ends is disconnected at once, because the system closes the connections of the
// process. Silence reveals a frozen process or a failed machine.
//
// On Linux since 6.15, connections resend a lost segment 10 ms after its round trip, and continue at
// that pace while few segments are under way. On other systems, TCP by default waits 200 ms, and then
// 400.
//
// # Other regions
//
// Gossip, the roster and connectivity stay within a region. [Config].Regions names other regions, by
// addresses that lead to any of their nodes, and [Cluster].Region returns their Peers. Each node keeps
// a connection to a single node of each region, on the same port and with the same handshake, Seed and
// TLS, and with the secrets of RegionSecrets or, without them, the same Secrets. The hello states the
// region of the node and the region to reach. If the address leads to a wrong region, both sides
// refuse, and log the refusal. The connection carries only requests, answers and pings: a node of a
// different region can send requests, but is not a member, is not part of connectivity, and does not
// receive the roster.
//
// The address of the remote node is chosen at random among the addresses to which the names then
// resolve, except that addresses at which fewer attempts have failed come first. The remote node
// receives a ping about once a second. If it does not answer for 3 s, leaves or hangs up, the local
// node connects again, to a different address if there is one. The pause before an attempt is at most
// 100 ms, and doubles up to 10 s while attempts fail.
//
// # Security
//
// Secrets encrypt gossip, and put peer connections under TLS 1.3, with a key pair that is derived from
// a secret. Both sides present this key pair, and compare the public key of the other side with it,
// without authorities, names or clocks. A change by an attacker ends the connection. A leaked secret
// cannot be used to decrypt recorded connections. Without secrets, any host that reaches the port can
// join, or send requests as a node of a different region. So secrets are required if other machines can
// reach the port. Each use of a secret has a derived key of its own. To rotate a secret, give all
// members [old, new], then [new, old], then [new]: members in adjacent stages connect. Config.TLS instead
// puts all TCP connections under TLS with certificates. With Secrets, both sides then also prove a common
// secret. Config.TLS does not protect UDP, so use Secrets too.
//
// TLS records are encrypted with TLS_AES_128_GCM_SHA256, and with TLS_CHACHA20_POLY1305_SHA256 if a
// side has no instructions for AES.
//
// Each side compares the hello of the other side with the proof of that side. With RegionSecrets, a secret
// of two regions proves only a node of the other region, which is not a member. With CertificateNames, the
// proof is a certificate with region and name, and streams of gossip then need the certificate of a
// member. A node whose hello differs from the proof is refused, and a listener counts the refusal as
// "identity". If both are unset, a holder of a secret, or of a certificate that TLS accepts, can state any region.
//
// Input is bounded before memory is allocated, including input from members:
//   - connections that have not identified themselves, including streams of gossip:
//     1,024, and at most an eighth of the file descriptors that the process may have. The oldest
//     connection of the IPv4 address or IPv6 /64 with most connections is closed first, and
//     streams of gossip last. Connections for requests, also during their handshake: 8,192, at most
//     half of the descriptors, and at most 16 of one node;
//   - streams of gossip: 64, each with a single message of at most 8 MiB. Once all streams together have
//     read 16 MiB, only messages of up to about 256 KiB pass. A stream that claims more than 8,192
//     nodes, or 4 MiB of state, is closed before memberlist reads the stream;
//   - packets of gossip: 2 KiB, not compressed, 8,192 messages at once and in each second after
//     that, of which at most 512 make this member send a packet;
//   - members: 4,096, including dead members until they are forgotten. At most 1,024 new members
//     are added at once, and 32 in each second after that. At most 64 members that this node has
//     never met are dialled at a time.
//
// Input above a bound is dropped, counted in [Stats].Refused and logged.
package cluster
