package env

import countsync "github.com/weir-go/weir/sync"

// Spender may be implemented by a cluster.Cluster. The node reports to it the units that it spends
// of each count, by the id that Limiter.ID returns. Units that it gives back are negative. Units that
// other members have spent are not reported.
type Spender interface {
	// Spent is called under a lock of the count. It must be short, and must not call the node.
	Spent(id [16]byte, units int64)
	// Reset is called under the same lock, as the node forgets a count. Later units of the count are
	// spent under this reset number.
	Reset(id [16]byte, number uint64)
}

// Capper may be implemented by a cluster.Cluster. Caps bounds the messages that the node still has to
// send to other members.
type Capper interface {
	Caps() countsync.Caps
}
