package bucket

// slab contains the logs of the SlidingLog counts of a shard. The zero value is ready for
// use.
type slab struct {
	logs   []log
	unused []uint32
	edits  uint64 // initial edits of the last allocated log
}

// logEdits is the number of edits that each log can count before it reaches the initial edits
// of the next log.
const logEdits = 1 << 24

// alloc returns the index of an empty log.
func (s *slab) alloc() uint32 {
	s.edits += logEdits
	if n := len(s.unused); n > 0 {
		i := s.unused[n-1]
		s.unused = s.unused[:n-1]
		s.logs[i].edits = s.edits
		return i
	}
	s.logs = append(s.logs, log{edits: s.edits})
	return uint32(len(s.logs) - 1)
}

// free frees log i and its memory.
func (s *slab) free(i uint32) {
	s.logs[i] = log{}
	s.unused = append(s.unused, i)
}

// pack removes all logs that no slot uses. Such a log can also belong to a count that is not in
// the table yet.
func (s *slab) pack(slots []slot, n *numbers) {
	if len(s.logs) == 0 {
		return
	}
	packed := make([]log, 0, len(s.logs)-len(s.unused))
	for i := range slots {
		if n.at[slots[i].entryIndex()].Algorithm == SlidingLog {
			packed = append(packed, s.logs[slots[i].log])
			slots[i].log = uint32(len(packed) - 1)
		}
	}
	s.logs, s.unused = packed, nil
}
