//go:build amd64 || arm64

package bucket

// prefetchCount prefetches the four slots at which the probes for h start, which contain
// nearly all of the counts, and the other memory of the shard that a check reads. It does not
// take the lock: the addresses that it reads may be outdated a moment later, and a prefetch
// of an invalid address has no effect.
//
//go:noescape
func prefetchCount(sh *shard, h uint64)
