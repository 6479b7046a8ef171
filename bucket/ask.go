package bucket

import "slices"

// Ask is one part of a TakeAll.
type Ask struct {
	ID    ID
	Limit *Limit
	Units int64
	// Shadow asks have no say: they are taken where the others are, each if it has
	// room itself.
	Shadow bool
}

// TakeAll takes all of the asks or none, but for shadows, in one step that no other
// call sees half done, and says which. The ids must be distinct. results has room
// for as many as asks, and gets what each was answered; if none was taken, what each
// would have been answered alone. It allocates nothing for up to 16 asks.
func (s *Store) TakeAll(asks []Ask, now int64, results []Result) bool {
	all, _ := s.TakeAllParts(asks, nil, now, results)
	return all
}

// TakeAllParts is TakeAll, where the part that SetPart has set judges each ask that has
// a whole. It does nothing, and known is false, if none is set, or one of another whole.
func (s *Store) TakeAllParts(asks []Ask, wholes []*Limit, now int64, results []Result) (all, known bool) {
	var few [16]uint64
	shards := few[:0]
	for i := range asks {
		shards = append(shards, s.placement.shard(s.placement.of(asks[i].ID)))
	}
	// Every caller locks several shards in one order, so that none waits in a circle.
	slices.Sort(shards)
	shards = slices.Compact(shards)
	for _, i := range shards {
		s.shards[i].mu.Lock()
	}
	known = true
	for i, whole := range wholes {
		if whole != nil {
			a := &asks[i]
			sh, h := s.locate(a.ID)
			a.Limit = sh.partOf(sh.find(a.ID, h, &s.placement), whole)
			known = known && a.Limit != nil
		}
	}
	all = known
	for i := range asks {
		if !known {
			break
		}
		a := &asks[i]
		sh, h := s.locate(a.ID)
		results[i] = s.peek(sh, h, a.ID, a.Limit, now, a.Units)
		all = all && (results[i].Allowed || a.Shadow)
	}
	if all {
		for i := range asks {
			a := &asks[i]
			sh, h := s.locate(a.ID)
			if c, l := sh.held(a.ID, h, &s.placement, a.Limit, now); c != nil {
				results[i] = l.take(&c.cell, sh.logOf(l, c), now, a.Units)
				if results[i].Allowed && a.Units > 0 {
					s.note(sh, c, l, a.Units)
				}
			} else {
				results[i] = s.takeFirst(sh, a.ID, a.Limit, now, a.Units)
			}
		}
	}
	for _, i := range shards {
		s.shards[i].mu.Unlock()
	}
	if all && len(asks) > 0 {
		s.trim(asks[0].ID, now)
	}
	return all, known
}
