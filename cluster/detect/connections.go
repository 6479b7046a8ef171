package detect

import "slices"

// Connections describes the connections between the members of a list of names. It names a member
// by the index in that list. A Connections must not be modified.
type Connections struct {
	// Connected[i] is the sorted list of members to which member i reports a connection. A member
	// reports only connections to members that it watches.
	Connected [][]int
	Direct    []bool // Direct[j]: this node is connected to member j, presumes so, or is member j
	Stalled   []bool // Stalled[j]: this node is connected to member j, which has stalled
	// Ended[j]: member j is not on the side of this node, and its host refuses the connections of members
	// of this side: of all of them or, in a large cluster, of at least one while no member of this side
	// finds member j silent.
	Ended []bool
}

// Connections returns the reported connections between the members with these names.
func (c *Connectivity) Connections(names []string) Connections {
	n, o := len(names), c.order
	connected := c.connected
	if !slices.Equal(names, o.names) {
		o = newOrder(names)
		connected = func(r *heldRow) []int { return o.indexes(r.Connected) }
	}
	result := Connections{make([][]int, n), make([]bool, n), make([]bool, n), make([]bool, n)}
	rows := make([]*heldRow, n)
	for i, id := range o.ids {
		if rows[i] = c.rows[id]; rows[i] != nil {
			result.Connected[i] = connected(rows[i])
		}
		result.Direct[i] = id == c.id || c.IsConnected(names[i])
		result.Stalled[i] = c.IsStalled(names[i])
	}
	refusals, silences, size := make([]int, n), make([]int, n), 0
	side := Side(result.Direct, result.Connected)
	for i, on := range side {
		if !on {
			continue
		}
		if size++; rows[i] == nil {
			continue
		}
		for _, j := range o.indexes(rows[i].Refused) {
			refusals[j]++
		}
		for _, j := range o.indexes(rows[i].Silent) {
			silences[j]++
		}
	}
	for j, n := range refusals {
		result.Ended[j] = !side[j] && n > 0 && (n == size || c.sparse && silences[j] == 0)
	}
	return result
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
	side := slices.Clone(direct)
	var queue []int
	for i, on := range side {
		if on {
			queue = append(queue, i)
		}
	}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		for _, j := range connected[i] {
			if !side[j] {
				side[j] = true
				queue = append(queue, j)
			}
		}
	}
	return side
}
