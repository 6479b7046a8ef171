package detect

import "slices"

// Connections describes the connections between the members of a list of names. It names a member
// by the index in that list. A Connections must not be modified.
type Connections struct {
	// Connected[i] is the sorted list of members to which member i reports a connection. A member
	// reports only connections to members that it watches.
	Connected [][]int
	Direct    []bool // Direct[j]: this node is connected to member j, presumes so, or is member j
	Side      []bool // Side[j]: member j is on the side of this node, as the function Side reports
	Stalled   []bool // Stalled[j]: this node is connected to member j, which has stalled
	// Ended[j]: member j is not on the side of this node, and its host refuses the connections of members
	// of this side: of all of them or, in a large cluster, of at least one while no member of this side
	// finds member j silent.
	Ended []bool
}

// Connections returns the reported connections between the members with these names.
func (c *Connectivity) Connections(names []string) Connections {
	n, o := len(names), c.order
	connected, contactOf := c.connected, func(i int) *contact { return c.members[names[i]] }
	if slices.Equal(names, o.names) {
		contacts := c.contacts()
		contactOf = func(i int) *contact { return contacts[i] }
	} else {
		o = newOrder(names)
		connected = func(r *heldRow) []int { return o.indexes(r.Connected) }
	}
	result := Connections{make([][]int, n), make([]bool, n), nil, make([]bool, n), make([]bool, n)}
	rows := make([]*heldRow, n)
	for i, id := range o.ids {
		if rows[i] = c.rows[id]; rows[i] != nil {
			result.Connected[i] = connected(rows[i])
		}
		s := contactOf(i).state()
		result.Direct[i], result.Stalled[i] = id == c.id || s.Connected, s.Stalled
	}
	result.Side = Side(result.Direct, result.Connected)
	size := 0
	var refusals, silences map[int]int
	for i, on := range result.Side {
		if !on {
			continue
		}
		if size++; rows[i] == nil {
			continue
		}
		refusals = o.count(refusals, rows[i].Refused)
		silences = o.count(silences, rows[i].Silent)
	}
	for j, n := range refusals {
		result.Ended[j] = !result.Side[j] && (n == size || c.sparse && silences[j] == 0)
	}
	return result
}

// count adds 1 to the count of each member in ids. The keys of counts are indexes. If counts is nil, count
// makes a map.
func (o *order) count(counts map[int]int, ids []uint64) map[int]int {
	if len(ids) == 0 {
		return counts
	}
	if counts == nil {
		counts = make(map[int]int)
	}
	for _, i := range o.indexes(ids) {
		counts[i]++
	}
	return counts
}

// indexes returns the indexes of the members with the given ids, in ascending order. It skips ids that are
// not in o.
func (o *order) indexes(ids []uint64) []int {
	if len(ids) == 0 {
		return nil
	}
	found := make([]int, 0, len(ids))
	for _, id := range ids {
		if i, known := o.index[id]; known {
			found = append(found, i)
		}
	}
	slices.Sort(found)
	return found
}

// Side reports for each member whether direct contains the member, or a chain of connections leads
// from a member of direct to it.
func Side(direct []bool, connected [][]int) []bool {
	side, queue := slices.Clone(direct), make([]int, 0, len(direct))
	for i, on := range side {
		if on {
			queue = append(queue, i)
		}
	}
	for k := 0; k < len(queue); k++ {
		for _, j := range connected[queue[k]] {
			if !side[j] {
				side[j] = true
				queue = append(queue, j)
			}
		}
	}
	return side
}
