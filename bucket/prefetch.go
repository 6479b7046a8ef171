//go:build amd64 || arm64

package bucket

// Prefetch has the memory of ids that are about to be asked for come nearer, which it
// does not wait for. Where several are asked for in a row, their misses of the cache
// then overlap: each costs as much as all the rest of a check.
func (s *Store) Prefetch(ids []ID) {
	for i := range ids {
		sh, h := s.locate(ids[i])
		prefetchCount(sh, h)
	}
}

// prefetchCount prefetches the four slots that the probes for h start at, of whose counts
// nearly all are there, and what else of the shard a check of it looks at. It takes no lock: it reads where these are, which may be
// wrong by the next moment, and a prefetch of what is nowhere does nothing.
//
//go:noescape
func prefetchCount(sh *shard, h uint64)
