package bucket

// numbers are the limits that judge a shard's counts: a slot refers to them by
// index. Index 0 is none of them. The zero value is ready for use.
type numbers struct {
	at []Limit
}

// nearest is how many of the limits a search looks at. There are seldom more;
// if there are, one of them can be there twice, which costs its 48 bytes.
const nearest = 64

// find is the index of l, 0 if it is not among the latest.
func (n *numbers) find(l *Limit) uint32 {
	for i := len(n.at) - 1; i > max(0, len(n.at)-nearest); i-- {
		if n.at[i] == *l {
			return uint32(i)
		}
	}
	return 0
}

func (n *numbers) full() bool { return len(n.at) == cap(n.at) }

func (n *numbers) add(l *Limit) uint32 {
	if len(n.at) == 0 {
		n.at = make([]Limit, 1, 2)
	}
	n.at = append(n.at, *l)
	return uint32(len(n.at) - 1)
}

// prune drops the limits that no slot refers to, and leaves room for as many
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
	spare := 1
	if live > 1 {
		spare = max(16, live)
	}
	kept := make([]Limit, 1, 1+live+spare)
	for i := 1; i < len(used); i++ {
		if used[i] > 0 {
			used[i] = uint32(len(kept))
			kept = append(kept, n.at[i])
		}
	}
	used[0] = 0
	for i := range slots {
		slots[i].limit = slots[i].flags() | used[slots[i].judge()]
	}
	n.at = kept
}
