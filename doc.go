// Package weir is an embedded, in-memory, distributed rate limiter. Every
// replica of a service embeds a [Node]. The nodes find each other by gossip, and a
// consistent-hash ring gives each key one owner. The owner counts in memory, and
// every other node asks it. There is no server to run.
//
//	node, err := weir.Start(ctx, weir.Config{Bind: ":7946", Join: []string{"limits.default.svc:7946"}, Secrets: [][]byte{secret}})
//	perUser, err := node.Limiter(weir.Limit{Name: "per user", Rate: 100, Per: time.Minute})
//	d, err := perUser.Allow(ctx, userID)
//	if !d.Allowed { /* come back in d.RetryAfter */ }
//
// # The path of a check
//
// [Limiter.Allow] hashes the name of the [Limit] and the key into an id. The node's
// present view of the cluster names the member that decides about this id. The Source of
// the [Decision] tells which way the check went:
//
//	Limiter.Allow ─► id ─► route
//	  ├─ this node has authority ────────► its own store                   Owner
//	  ├─ another member has it
//	  │    ├─ it denied as much just now ► denied here                     Pushback
//	  │    ├─ it lent units to this node ► spent here                      Leased
//	  │    ├─ it is connected ───────────► its store                       Forwarded
//	  │    └─ only others hear it ───────► its store, through a member     Relayed
//	  ├─ it is missing, stalled or late ─► the copy of a successor         StandIn
//	  └─ no member answers in time ──────► this node's share of the limit  Budget, FailedOpen, FailedClosed
//
// A check waits for other nodes no longer than the Timeout of [Config]. When neither the
// owner nor a stand-in answers in that time, the node answers within its own share of the
// limit, or as the limit's [PartitionPolicy] says. The README states what can be admitted
// at most.
//
// Three states of an owner are told apart. An owner that is late is waited for. An owner
// that has left a request unanswered and has sent nothing for 200 ms has stalled: this
// node does not ask it until it sends something. An owner is missing once the connection
// to it breaks, or both connections are silent for 800 ms: only that changes shares and
// majorities.
//
// A denial is remembered by the node that asked, until its RetryAfter and for a second at
// most, so that a flood of a denied key does not reach its owner. An owner lends units of
// a key to a node that asks for the key often. It counts them as spent, and the node
// spends them, renews them and returns the rest.
//
// [Node.AllowAll] decides on several limits at once: all are spent or none.
// [Limiter.Wait] waits for units, on a LeakyBucket in order of arrival. [Limiter.Reset]
// forgets a key's count on every member.
//
// A reservation ([Limiter.Reserve]) is an estimate that is spent ahead of a cost which is
// known only afterwards. To settle it is to replace the estimate by the actual cost. A hold
// ([Limiter.Hold]) is units of an [InFlight] limit that a caller, the holder, has until it
// releases them. The member that answers for a key knows its holds from their holders, which
// renew them once a second.
//
// Authority over keys moves when members join and leave, after the counts have moved. The
// stream that carries the counts also keeps the copies. What [Node.Publish] publishes all
// nodes have; no check waits for it.
//
// # Packages
//
// The engine is four packages. Package bucket is the arithmetic of limits and the store of
// counts. Package ring computes which member owns a key. Package countsync (directory
// sync) keeps counts in agreement. Package cluster knows which members are here, and asks
// them. What they export may change in any release; a service needs [cluster.Cluster]
// alone, the type of Config.Cluster.
//
// The parts of a node are packages under internal, and [Start] assembles them.
// docs/architecture.md describes each, and follows a check, a change and a hand-over through them.
//
// Package weirtest runs clusters in virtual time.
package weir
