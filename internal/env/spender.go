package env

import countsync "github.com/weir-go/weir/sync"

// Spender may be implemented by a cluster.Cluster. The node reports the units that it spends of each
// count, with the id that Limiter.ID returns. The number of units is negative for a refund. The node
// does not report the units that other members spend.
type Spender interface {
	// Spent is called under a lock of the count. It must return soon, and must not call the node.
	Spent(id [16]byte, units int64)
	// Reset is called under the same lock when the node deletes a count. From then on, the node
	// spends units of the count under this reset number.
	Reset(id [16]byte, number uint64)
}

// Capper may be implemented by a cluster.Cluster. Caps returns the bounds of the stream from the
// node to other members.
type Capper interface {
	Caps() countsync.Caps
}
