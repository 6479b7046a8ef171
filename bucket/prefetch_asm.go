//go:build amd64 || arm64

package bucket

// prefetchCount prefetches the first four slots that the probes for h read, which usually contain
// the count, and the other memory of the shard that a check reads. It does not
// take the lock: the addresses that it reads may be outdated a moment later, and a prefetch
// of an invalid address has no effect.
//
//go:noescape
func prefetchCount(sh *shard, h uint64)
