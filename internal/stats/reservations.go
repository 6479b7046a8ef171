package stats

import (
	"sync/atomic"
	"time"
)

// reservationSlots is a power of two above the seconds of the longest reservation, an hour.
const reservationSlots = 1 << 12

// Reservations counts the reservations of a node. The zero Reservations has counted nothing.
//
// Those that are open are counted by the second in which they expire, so that no goroutine
// and no list has to find the ones that nobody settles. All times are by the steady clock.
type Reservations struct {
	Made, Settled, Canceled, Carried atomic.Uint64
	UnitsReturned, UnitsDebited      atomic.Uint64

	unsettled atomic.Uint64
	open      atomic.Pointer[[reservationSlots]openReservations] // nil until the first one
}

// openReservations has a second in its upper half, and in the lower one how many of the
// reservations that expire in it are open.
type openReservations struct{ atomic.Uint64 }

// secondOf is the second after a time.
func secondOf(at int64) uint64 { return uint64(at/int64(time.Second)+1) & (1<<32 - 1) }

// Make counts a reservation that is open until it expires.
func (m *Reservations) Make(expires int64) {
	m.Made.Add(1)
	slots := m.open.Load()
	if slots == nil {
		m.open.CompareAndSwap(nil, new([reservationSlots]openReservations))
		slots = m.open.Load()
	}
	second := secondOf(expires)
	slot := &slots[second%reservationSlots]
	for {
		was := slot.Load()
		next := was + 1
		if was>>32 != second {
			next = second<<32 | 1
		}
		if slot.CompareAndSwap(was, next) {
			if was>>32 != second {
				m.unsettled.Add(was & (1<<32 - 1))
			}
			return
		}
	}
}

// Close counts a reservation as open no more, that has not expired.
func (m *Reservations) Close(expires int64) {
	slots, second := m.open.Load(), secondOf(expires)
	if slots == nil {
		return
	}
	slot := &slots[second%reservationSlots]
	for {
		was := slot.Load()
		if was>>32 != second || was&(1<<32-1) == 0 || slot.CompareAndSwap(was, was-1) {
			return
		}
	}
}

// Unsettled returns how many have expired while they were open.
func (m *Reservations) Unsettled(now int64) uint64 {
	slots := m.open.Load()
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
				m.unsettled.Add(was & (1<<32 - 1))
				break
			}
		}
	}
	return m.unsettled.Load()
}
