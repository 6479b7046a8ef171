package bucket

// numbers are what judges a shard's counts, and whose their totals are: a slot
// refers to both by one index. Index 0 is none of them. The zero value is ready for
// use.
type numbers struct {
	at []entry
}

// entry is the limit that judges a count, and the origin of its total. The two share
// an index because almost every count of a limit has one of few origins, so that a
// slot needs no room for the second. A check looks at the limit alone.
type entry struct {
	Limit
	by originSeries
}

// originSeries is whose a total is, and in which series: zero if it is nobody's.
type originSeries struct {
	origin uint64
	series int64
}

// nearest is how many of the entries a search looks at. There are seldom more;
// if there are, one of them can be there twice until prune drops it.
const nearest = 64

// find is the index of l and by, 0 if they are not among the latest.
func (n *numbers) find(l *Limit, by originSeries) uint32 {
	for i := len(n.at) - 1; i > max(0, len(n.at)-nearest); i-- {
		if e := &n.at[i]; e.by == by && e.Limit == *l {
			return uint32(i)
		}
	}
	return 0
}

func (n *numbers) full() bool { return len(n.at) == cap(n.at) }

func (n *numbers) add(l *Limit, by originSeries) uint32 {
	if len(n.at) == 0 {
		n.at = make([]entry, 1, 2)
	}
	n.at = append(n.at, entry{*l, by})
	return uint32(len(n.at) - 1)
}

// prune drops the entries that no slot refers to, and leaves room for as many
// again, so that it need not be called soon.
func (n *numbers) prune(slots []slot) {
	if len(n.at) == 0 {
		return
	}
	used := make([]uint32, len(n.at)) // how often, and then the new index
	for i := range slots {
		used[slots[i].judge()] = 1
	}
	live := 0
	for i := 1; i < len(used); i++ {
		live += int(used[i])
	}
	var once map[entry]uint32 // only where some may be there twice
	if live >= nearest {
		once = make(map[entry]uint32, live)
	}
	kept := make([]entry, 1, 1+live)
	for i := 1; i < len(used); i++ {
		if used[i] == 0 {
			continue
		}
		used[i] = uint32(len(kept))
		if once != nil {
			if first, ok := once[n.at[i]]; ok {
				used[i] = first
				continue
			}
			once[n.at[i]] = used[i]
		}
		kept = append(kept, n.at[i])
	}
	live = len(kept) - 1
	spare := 1
	if live > 1 {
		spare = max(16, live)
	}
	if once != nil {
		spare = max(spare, len(slots)/64) // a search often fails, and each pruning looks at all slots
	}
	used[0] = 0
	for i := range slots {
		slots[i].limit = slots[i].flags() | used[slots[i].judge()]
	}
	n.at = append(make([]entry, 0, 1+live+spare), kept...)
}
