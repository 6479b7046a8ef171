// Package weir is an embedded, in-memory, distributed rate limiter. Every
// replica of a service embeds a Node; the nodes find each other by gossip, a
// consistent-hash ring gives each key one owner, the owner counts in memory, and
// everyone else asks the owner. There is no server to run.
//
//	node, err := weir.Start(ctx, weir.Config{Bind: ":7946", Join: []string{"limits.default.svc:7946"}, Secrets: [][]byte{secret}})
//	perUser, err := node.Limiter(weir.Limit{Name: "per user", Rate: 100, Per: time.Minute})
//	d, err := perUser.Allow(ctx, userID)
//	if !d.Allowed { /* come back in d.RetryAfter */ }
//
// The way of a check:
//
//	Limiter.Allow → id → view.route ─┬─ here     → bucket.Store
//	                                 ├─ pushback → denied: the owner has just denied as much
//	                                 ├─ lease    → spent of what the owner has lent to this node
//	                                 ├─ direct   → the owner's bucket.Store
//	                                 ├─ relay    → the owner, through another member
//	                                 ├─ stand-in → the first successor that is reached, which has a copy
//	                                 └─ alone    → this node's share of the limit
//
// A check waits for other nodes no longer than Config.Timeout. When neither the
// owner nor a stand-in answers in that time, the node answers within its own share
// of the limit, or as the limit's PartitionPolicy says; the README states what can
// be admitted at most.
//
// An owner that is late is waited for; one that has stalled (it has left an ask of this
// node unanswered, and has said nothing for 200 ms) is not asked by this node until it
// says something; and it is missing, for shares and majorities, only once the
// connection to it breaks, or both with it are silent for 800 ms. Package cluster finds
// that out.
//
// A denial is remembered by the node that asked (pushback.go), until its RetryAfter and
// for a second at most: a flood of a denied key does not reach its owner.
//
// Of a key that a node asks for often (heat.go) the owner lends it units with its answers
// (lent.go), which it has spent itself by then, and the node spends them, renews them and
// gives back what is left (lease.go, leasekeeping.go): a hot key costs few hops.
//
// What a node has the final word on (authority.go) moves when members join and
// leave, after the counts have (stream.go); the same stream keeps the copies.
//
// What nodes publish all of them have; no check waits for it.
//
// The floors below: package bucket is the arithmetic of limits and the store of
// counts, package ring says which node owns a key, package countsync (sync/) keeps
// counts in agreement, package cluster says who is here and how to ask them.
// Package weirtest runs clusters in virtual time.
package weir
