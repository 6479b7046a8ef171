package bucket

// numbers contains the limits that judge the counts of a shard, and the origins of the totals
// of these counts. A slot refers to both by a single index. Index 0 refers to no entry. The zero
// value is ready for use.
type numbers struct {
	at []entry
}

// entry contains the limit that judges a count, and the origin of its total. The counts of a
// limit usually have few different origins. A common index for limit and origin saves a
// second index in each slot. A check only reads the limit.
//
// Evictions rely on judged: in the first entry of a limit, it is the number of slots that
// refer to any entry of that limit. This breaks if a slot changes its limit without judgeBy,
// or enters or leaves the table without addJudged.
type entry struct {
	Limit
	series originSeries
	first  uint32 // index of the first entry of this limit; of this entry if findFirst found none
	judged int32  // number of slots that refer to any entry of this limit; used only in the first entry
}

// originSeries is the origin of a total and its series. The zero value means that the total
// has no origin.
type originSeries struct {
	origin uint64
	series int64
}

// nearest limits the number of entries in a search: a search reads only the last nearest-1 entries.
// There are seldom more entries. If there are, an entry can exist twice until prune removes the
// duplicate.
const nearest = 64

// find returns the index of the entry with the limit l and the given origin, or 0 if it is not
// among the latest entries.
func (n *numbers) find(l *Limit, origin originSeries) uint32 {
	for i := len(n.at) - 1; i > max(0, len(n.at)-nearest); i-- {
		if e := &n.at[i]; e.series == origin && e.Limit == *l {
			return uint32(i)
		}
	}
	return 0
}

// findFirst returns the index of the first entry of l, or 0 if no entry of l is among the
// latest entries.
func (n *numbers) findFirst(l *Limit) uint32 {
	for i := len(n.at) - 1; i > max(0, len(n.at)-nearest); i-- {
		if e := &n.at[i]; e.Limit == *l {
			return e.first
		}
	}
	return 0
}

// maxJudged returns the number of counts of the limit that judges the most counts, among the
// limits whose first entry is among the latest entries.
func (n *numbers) maxJudged() (judged int32) {
	for i := len(n.at) - 1; i > max(0, len(n.at)-nearest); i-- {
		judged = max(judged, n.at[i].judged)
	}
	return judged
}

// judgedBy returns the number of counts that the limit of an entry judges.
func (n *numbers) judgedBy(entry uint32) int32 { return n.at[n.at[entry].first].judged }

// addJudged adds delta to the number of slots that refer to the limit of an entry.
func (n *numbers) addJudged(entry uint32, delta int32) { n.at[n.at[entry].first].judged += delta }

func (n *numbers) isFull() bool { return len(n.at) == cap(n.at) }

func (n *numbers) add(l *Limit, origin originSeries) uint32 {
	if len(n.at) == 0 {
		n.at = make([]entry, 1, 2)
	}
	at := uint32(len(n.at))
	first := n.findFirst(l)
	if first == 0 {
		first = at
	}
	n.at = append(n.at, entry{*l, origin, first, 0})
	return at
}

// prune removes the entries that no slot refers to. Afterwards there is room for at least as many
// new entries as remain, so that prune is not called again soon.
func (n *numbers) prune(slots []slot) {
	if len(n.at) == 0 {
		return
	}
	used := make([]uint32, len(n.at)) // for each entry: first 1 if a slot refers to it, and later its new index
	for i := range slots {
		used[slots[i].entryIndex()] = 1
	}
	live := 0
	for i := 1; i < len(used); i++ {
		live += int(used[i])
	}
	type whose struct {
		Limit
		originSeries
	}
	var once map[whose]uint32 // only if some entries may exist twice
	if live >= nearest {
		once = make(map[whose]uint32, live)
	}
	kept, firsts := make([]entry, 1, 1+live), make(map[Limit]uint32, live)
	for i := 1; i < len(used); i++ {
		if used[i] == 0 {
			continue
		}
		used[i] = uint32(len(kept))
		e := &n.at[i]
		if once != nil {
			if twin, ok := once[whose{e.Limit, e.series}]; ok {
				used[i] = twin
				continue
			}
			once[whose{e.Limit, e.series}] = used[i]
		}
		first, ok := firsts[e.Limit]
		if !ok {
			first = used[i]
			firsts[e.Limit] = first
		}
		kept = append(kept, entry{e.Limit, e.series, first, 0})
	}
	live = len(kept) - 1
	spare := 1
	if live > 1 {
		spare = max(16, live)
	}
	if once != nil {
		spare = max(spare, len(slots)/64) // because a search often fails, and prune reads all of the slots each time
	}
	used[0] = 0
	for i := range slots {
		judge := used[slots[i].entryIndex()]
		slots[i].limit = slots[i].flags() | judge
		kept[kept[judge].first].judged++
	}
	n.at = append(make([]entry, 0, 1+live+spare), kept...)
}
