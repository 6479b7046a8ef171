package holds

// recordHeap is a heap of records of a shard, by their indexes. The record with the least timeOf is
// at 0.
type recordHeap struct {
	indexes []int32
	timeOf  func(*record) int64
}

func dueExpiry(r *record) int64 { return r.expires }
func dueForget(r *record) int64 { return r.forget }

// push adds record i.
func (q *recordHeap) push(records []record, i int32) {
	place := int32(len(q.indexes))
	q.indexes = append(q.indexes, i)
	records[i].place = place
	q.siftUp(records, place)
}

// remove removes the record at a place.
func (q *recordHeap) remove(records []record, place int32) {
	last := int32(len(q.indexes) - 1)
	q.swap(records, place, last)
	q.indexes = q.indexes[:last]
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
		if first >= int32(len(q.indexes)) {
			return
		}
		if next := first + 1; next < int32(len(q.indexes)) && q.isBefore(records, next, first) {
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
	return q.timeOf(&records[q.indexes[a]]) < q.timeOf(&records[q.indexes[b]])
}

func (q *recordHeap) swap(records []record, a, b int32) {
	q.indexes[a], q.indexes[b] = q.indexes[b], q.indexes[a]
	records[q.indexes[a]].place, records[q.indexes[b]].place = a, b
}
