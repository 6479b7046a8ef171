//go:build amd64 || arm64

package bucket

// prefetchCount prefetches the first four slots that the probes for h read, which usually contain
// the count. It also prefetches the first limit of the shard and, with Track, the changes of the
// shard and the total of the first slot. It does not prefetch the log of a SlidingLog. It does not
// take the lock: the addresses that it reads may be outdated a moment later, and a prefetch of an
// invalid address has no effect.
//
//go:noescape
func prefetchCount(sh *shard, h uint64)
