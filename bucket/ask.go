package bucket

import "slices"

// Ask is a single ask of a TakeAll.
type Ask struct {
	ID    ID
	Limit *Limit
	Units int64
	// Shadow asks do not affect the decision. If the other asks are taken, each shadow ask
	// with room for its units is taken as well.
	Shadow bool
}

// TakeAll takes either all asks or no asks, and reports whether it took them. A shadow ask
// without room for its units is left out. No other call can observe a state in which only some
// asks are taken. The IDs must be distinct. The slice results must be at least as long as asks.
// TakeAll stores the result of asks[i] in results[i]: the result of its Take, or of a Peek if
// no ask was taken. For up to 16 asks, TakeAll allocates only what a Take of each ask allocates.
func (s *Store) TakeAll(asks []Ask, now int64, results []Result) bool {
	all, _ := s.TakeAllParts(asks, nil, now, results)
	return all
}

// TakeAllParts is like TakeAll, except for each asks[i] whose wholes[i] is not nil. The limit that
// SetPart has set for the ID, as a part of wholes[i], judges this ask. TakeAllParts sets the Limit of
// the ask to this limit, with the Keep of wholes[i] in proportion. If an ask has no such part,
// TakeAllParts takes no asks and sets no results, known is false, and the Limit of this ask may be
// nil. The slice wholes may be shorter than asks.
func (s *Store) TakeAllParts(asks []Ask, wholes []*Limit, now int64, results []Result) (all, known bool) {
	var few [16]uint64
	shards := few[:0]
	for i := range asks {
		shards = append(shards, s.placement.shardNumber(s.placement.place(asks[i].ID)))
	}
	// All callers lock shards in the same order, so that no two callers wait for each other.
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
			a.Limit = sh.findPart(sh.find(a.ID, h, &s.placement), whole)
			known = known && a.Limit != nil
			if whole.Keep > 0 && known {
				a.Limit = new(a.Limit.Keeping(whole))
			}
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
			if c, l := sh.lookup(a.ID, h, &s.placement, a.Limit, now); c != nil {
				results[i] = l.takeUnits(&c.cell, sh.logOf(l, c), now, a.Units)
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
