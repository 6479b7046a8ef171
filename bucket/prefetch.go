//go:build amd64 || arm64

package bucket

// Prefetch loads the memory of the given IDs into the cache, without waiting for it. If
// several IDs are checked in a row, their cache misses then overlap. A miss costs as much as
// the rest of a check.
func (s *Store) Prefetch(ids []ID) {
	for i := range ids {
		sh, h := s.locate(ids[i])
		prefetchCount(sh, h)
	}
}

// prefetchCount prefetches the four slots at which the probes for h start, which contain
// nearly all of the counts, and the other memory of the shard that a check reads. It does not
// take the lock: the addresses that it reads may be outdated a moment later, and a prefetch
// of an invalid address has no effect.
//
//go:noescape
func prefetchCount(sh *shard, h uint64)
