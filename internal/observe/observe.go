// Package observe is what tests and simulations learn of a node that its API does not
// tell, as what each check came to in its counts, also where nobody hears its answer; and
// what they set of it that is not for users.
package observe

import countsync "github.com/weir-go/weir/sync"

// Spender is what a cluster.Cluster may be as well. It is told of the units of each
// count that its node spends, by the id that Limiter.ID gives, or below zero gives back,
// as it does; not of those that others have. It is called under a lock of that count's:
// it must be short, and call nothing of the node.
type Spender interface {
	Spent(id [16]byte, units int64)
	// Reset is called as the node forgets a count, under the same lock: what it spends of
	// it from then on is spent under this reset number.
	Reset(id [16]byte, number uint64)
}

// Capper is what a cluster.Cluster may be as well. What its node has to send the others it
// bounds by these caps.
type Capper interface {
	Caps() countsync.Caps
}
