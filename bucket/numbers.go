package bucket

// numbers are what judges a shard's counts, and whose their totals are: a slot
// refers to both by one index. Index 0 is none of them. The zero value is ready for
// use.
type numbers struct {
	at []entry
}

// entry is the limit that judges a count, and the origin of its total. The two share
// an index because almost every count of a limit has one of few origins, so that a
// slot needs no room for the second. A check reads the limit alone.
//
// Evictions rely on judged: in the first entry of a limit it is the number of slots that
// refer to any entry of that limit. A slot that changes its limit other than by judgeBy,
// or that enters or leaves the table without judge, breaks that.
type entry struct {
	Limit
	by     originSeries
	first  uint32 // the first entry of this limit, as far as find finds it
	judged int32  // in that one: the slots that refer to any of them
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

// first is the first entry of l, 0 if there is none.
func (n *numbers) first(l *Limit) uint32 {
	for i := len(n.at) - 1; i > max(0, len(n.at)-nearest); i-- {
		if e := &n.at[i]; e.Limit == *l {
			return e.first
		}
	}
	return 0
}

// most is how many counts that limit judges that judges most, as far as find finds it.
func (n *numbers) most() (judged int32) {
	for i := len(n.at) - 1; i > max(0, len(n.at)-nearest); i-- {
		judged = max(judged, n.at[i].judged)
	}
	return judged
}

// counts is how many counts the limit of an entry judges.
func (n *numbers) counts(by uint32) int32 { return n.at[n.at[by].first].judged }

// judge takes note that so many more slots refer to an entry.
func (n *numbers) judge(by uint32, more int32) { n.at[n.at[by].first].judged += more }

func (n *numbers) full() bool { return len(n.at) == cap(n.at) }

func (n *numbers) add(l *Limit, by originSeries) uint32 {
	if len(n.at) == 0 {
		n.at = make([]entry, 1, 2)
	}
	at := uint32(len(n.at))
	first := n.first(l)
	if first == 0 {
		first = at
	}
	n.at = append(n.at, entry{*l, by, first, 0})
	return at
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
	type whose struct {
		Limit
		originSeries
	}
	var once map[whose]uint32 // only where some may be there twice
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
			if twin, ok := once[whose{e.Limit, e.by}]; ok {
				used[i] = twin
				continue
			}
			once[whose{e.Limit, e.by}] = used[i]
		}
		first, ok := firsts[e.Limit]
		if !ok {
			first = used[i]
			firsts[e.Limit] = first
		}
		kept = append(kept, entry{e.Limit, e.by, first, 0})
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
		judge := used[slots[i].judge()]
		slots[i].limit = slots[i].flags() | judge
		kept[kept[judge].first].judged++
	}
	n.at = append(make([]entry, 0, 1+live+spare), kept...)
}
