package bucket

// prefetched is the number of counts that are prefetched at a time.
const prefetched = 32

// Prefetch loads the memory of the given IDs into the cache, without waiting for it. If
// several IDs are checked in a row, their cache misses then overlap. A miss costs as much as
// the rest of a check. On processors other than amd64 and arm64, Prefetch does nothing.
func (s *Store) Prefetch(ids []ID) {
	for i := range ids {
		sh, h := s.locate(ids[i])
		prefetchCount(sh, h)
	}
}
