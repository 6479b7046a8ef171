package bucket

// slab holds the logs of a shard's SlidingLog counts. The zero value is ready
// for use.
type slab struct {
	logs   []log
	unused []uint32
	edits  uint64 // what the last log's edits began at
}

// logEdits are left to each log before its edits come upon those of the next one.
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

// pack moves the logs that slots refer to together, and forgets the rest, among
// them any of a count that is not in the table yet.
func (s *slab) pack(slots []slot, n *numbers) {
	if len(s.logs) == 0 {
		return
	}
	packed := make([]log, 0, len(s.logs)-len(s.unused))
	for i := range slots {
		if n.at[slots[i].judge()].Algorithm == SlidingLog {
			packed = append(packed, s.logs[slots[i].log])
			slots[i].log = uint32(len(packed) - 1)
		}
	}
	s.logs, s.unused = packed, nil
}
