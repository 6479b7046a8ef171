// Package weir is an embedded, in-memory, distributed rate limiter. Each instance of a service
// embeds a [Node]. The nodes find each other by gossip, and a consistent-hash ring assigns each key
// to an owner. The owner counts in memory, and all other nodes ask it. No server has to be run.
//
//	node, err := weir.Start(ctx, weir.Config{Bind: ":7946", Join: []string{"limits.default.svc:7946"}, Secrets: [][]byte{secret}})
//	perUser, err := node.Limiter(weir.Limit{Name: "per user", Rate: 100, Per: time.Minute})
//	d, err := perUser.Allow(ctx, userID)
//	if !d.Allowed { /* try again after d.RetryAfter */ }
//
// Most services need five calls:
//
//   - [Start] starts a node. The zero [Config] is valid: a cluster of a single node, without a
//     network.
//   - [Node.Limiter] returns a [Limiter] for a [Limit], which is a policy.
//   - [Limiter.Allow] spends a unit of a key, or denies. The [Decision] states the result.
//   - [Node.AllowAll] spends units of several limits at once, or of none.
//   - [Node.Leave] transfers the counts of this node to other members before the process
//     stops, and [Node.Close] stops the node.
//
// A denial is not an error, and neither is an outage: both are a Decision.
//
// # Other calls
//
// [Limiter.Wait] waits for units, on a LeakyBucket in order of arrival. [Limiter.Debit] spends a
// cost that is known only afterwards, and [Limiter.Refund] returns units. [Limiter.Reset]
// deletes the count of a key on every member. [Limiter.Pause] denies all checks of a key for a time.
//
// A reservation ([Limiter.Reserve]) is an estimate that is spent before the actual cost is
// known. Settle replaces the estimate by the actual cost:
//
//	tokens, err := perUser.Reserve(ctx, userID, estimate)
//	if !tokens.Decision().Allowed { /* try again after its RetryAfter */ }
//	err = tokens.Settle(ctx, actual)
//
// A hold ([Limiter.Hold]) is units of an [InFlight] limit that a caller, the holder, has until
// the holder releases them. The node renews the hold meanwhile:
//
//	hold, err := exports.Hold(ctx, userID, 1)
//	if !hold.Decision().Allowed { /* try again, or call WaitHold instead */ }
//	defer hold.Release()
//	select {
//	case <-export(ctx): // the work is done
//	case <-hold.Lost(): // other callers may have the unit: stop the work
//	}
//
// [Node.Publish] sends a small value to all nodes. No check waits for this.
//
// # The path of a check
//
// [Limiter.Allow] hashes the name of the [Limit] and the key into an ID. The current view of the
// cluster, on this node, determines the member that decides. The Source of the [Decision] names
// the path of the check:
//
//	Limiter.Allow ─► ID ─► route
//	  ├─ this node has authority ────────► its own store                   Owner
//	  ├─ another member has it
//	  │    ├─ it denied as much just now ► denied here                     Pushback
//	  │    ├─ it lent units to this node ► spent here                      Leased
//	  │    ├─ it is connected ───────────► its store                       Forwarded
//	  │    └─ only others reach it ──────► its store, through a member     Relayed
//	  ├─ it is missing, stalled or late ─► the replica of a successor      StandIn
//	  └─ no member answers in time ──────► this node's share of the limit  Budget, FailedOpen, FailedClosed
//
// A check waits for other nodes no longer than the Timeout of [Config] states. If neither the owner
// nor a stand-in answers in that time, the node decides within its own share of the limit, or by
// the [PartitionPolicy] of the limit. docs/guarantees.md states the maximum that a limit can admit
// during a fault.
//
// docs/partitions.md defines when a member is late, stalled or missing. Only a missing member
// changes shares and majorities.
//
// The node that asked caches a denial, so that a flood of checks for a denied key does not reach
// the owner. An owner lends units of a key to a node that asks for the key often, and counts
// these units as spent. The node spends them, renews the lease and returns the rest.
//
// # Packages
//
// The engine consists of the packages bucket, ring, countsync (directory sync) and cluster. Their
// exported identifiers may change in any release. A service needs only [cluster.Cluster], the type
// of Config.Cluster. [Start] assembles the parts of a node, which are packages under internal.
// docs/architecture.md describes them. Package weirtest runs clusters in virtual time.
package weir
