package reserve

import (
	"sync/atomic"
	"time"
)

// openSlots is a power of two above the number of seconds in longestLife.
const openSlots = 1 << 12

// open counts the reservations that are neither settled nor carried (Reservation.Text), by the second
// in which they expire. So no goroutine and no list is needed to find reservations that are never
// settled. All times are by the monotonic clock. The zero value has counted no reservation.
type open struct {
	made  atomic.Uint64
	over  atomic.Uint64                     // number of expired reservations
	slots atomic.Pointer[[openSlots]second] // nil until the first reservation
}

// second has a second in its upper half, and in its lower half the number of open reservations that
// expire in that second.
type second struct{ atomic.Uint64 }

// secondOf returns the number of the second that follows a time.
func secondOf(at int64) uint64 { return uint64(at/int64(time.Second)+1) & (1<<32 - 1) }

// add counts an open reservation that expires at the given monotonic time.
func (m *open) add(expires int64) {
	m.made.Add(1)
	slots := m.slots.Load()
	if slots == nil {
		m.slots.CompareAndSwap(nil, new([openSlots]second))
		slots = m.slots.Load()
	}
	at := secondOf(expires)
	slot := &slots[at%openSlots]
	for {
		was := slot.Load()
		next := was + 1
		if was>>32 != at {
			next = at<<32 | 1
		}
		if slot.CompareAndSwap(was, next) {
			if was>>32 != at {
				m.over.Add(was & (1<<32 - 1))
			}
			return
		}
	}
}

// remove stops counting a reservation as open if it has not expired.
func (m *open) remove(expires int64) {
	slots, at := m.slots.Load(), secondOf(expires)
	if slots == nil {
		return
	}
	slot := &slots[at%openSlots]
	for {
		was := slot.Load()
		if was>>32 != at || was&(1<<32-1) == 0 || slot.CompareAndSwap(was, was-1) {
			return
		}
	}
}

// unsettled returns the number of reservations that have expired while they were open.
func (m *open) unsettled(now int64) uint64 {
	slots := m.slots.Load()
	if slots == nil {
		return 0
	}
	for i := range slots {
		slot := &slots[i]
		for {
			was := slot.Load()
			if was&(1<<32-1) == 0 || was>>32 >= secondOf(now) {
				break
			}
			if slot.CompareAndSwap(was, was>>32<<32) {
				m.over.Add(was & (1<<32 - 1))
				break
			}
		}
	}
	return m.over.Load()
}
