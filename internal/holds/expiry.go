package holds

// recordHeap is a heap of records of a shard, by their indexes. The record with the least due is at
// 0.
type recordHeap struct {
	at  []int32
	due func(*record) int64
}

func dueExpiry(r *record) int64 { return r.expires }
func dueForget(r *record) int64 { return r.forget }

// push adds record i.
func (q *recordHeap) push(records []record, i int32) {
	place := int32(len(q.at))
	q.at = append(q.at, i)
	records[i].place = place
	q.siftUp(records, place)
}

// remove removes the record at a place.
func (q *recordHeap) remove(records []record, place int32) {
	last := int32(len(q.at) - 1)
	q.swap(records, place, last)
	q.at = q.at[:last]
	if place < last {
		q.fix(records, place)
	}
}

// fix restores the order after the time of the record at a place has changed.
func (q *recordHeap) fix(records []record, place int32) {
	q.siftUp(records, place)
	q.siftDown(records, place)
}

func (q *recordHeap) siftUp(records []record, place int32) {
	for place > 0 {
		parent := (place - 1) / 2
		if !q.isBefore(records, place, parent) {
			return
		}
		q.swap(records, place, parent)
		place = parent
	}
}

func (q *recordHeap) siftDown(records []record, place int32) {
	for {
		first := 2*place + 1
		if first >= int32(len(q.at)) {
			return
		}
		if next := first + 1; next < int32(len(q.at)) && q.isBefore(records, next, first) {
			first = next
		}
		if !q.isBefore(records, first, place) {
			return
		}
		q.swap(records, place, first)
		place = first
	}
}

func (q *recordHeap) isBefore(records []record, a, b int32) bool {
	return q.due(&records[q.at[a]]) < q.due(&records[q.at[b]])
}

func (q *recordHeap) swap(records []record, a, b int32) {
	q.at[a], q.at[b] = q.at[b], q.at[a]
	records[q.at[a]].place, records[q.at[b]].place = a, b
}
