package reserve

import (
	"encoding/binary"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/wire"
)

// The text of a Reservation, before it is sealed: marker 16 | receipt 8 | reset number 8 |
// units 8 | time of the receipt 8 | expires 8 | life 8 | granted without authority 1 | of a bucket
// also the numbers of the receipt: version 8 | rate 8 | per 8 | burst 8. Times are of the day, in
// nanoseconds, as nodes share no other clock.
const (
	textKind        = 1
	textBytes       = 65
	bucketTextBytes = textBytes + 32
)

// Text returns v as a sealed text, which others can open from now on. It is empty where v is
// settled or has expired.
func (v *Reservation) Text() string {
	m := v.of
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.state == settled || v.expired() {
		return ""
	}
	if v.state == reserved {
		v.state, v.marker = carried, m.newMarker()
		m.open.remove(v.expires)
		m.carried.Add(1)
	}
	b := make([]byte, 0, bucketTextBytes)
	for _, x := range [...]uint64{
		v.marker.Hi, v.marker.Lo, uint64(v.ask.Receipt), v.ask.ResetNumber, uint64(v.ask.Units),
		uint64(m.cfg.Clock.TimeOfDayAt(v.spent)), uint64(m.cfg.Clock.TimeOfDayAt(v.expires)), uint64(v.life),
	} {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	stoodIn := byte(0)
	if v.ask.StoodIn {
		stoodIn = 1
	}
	b = append(b, stoodIn)
	if by := &v.by; by.Rate > 0 {
		for _, x := range [...]uint64{by.Version, uint64(by.Rate), uint64(by.Per), uint64(by.Burst)} {
			b = binary.LittleEndian.AppendUint64(b, x)
		}
	}
	return m.cfg.Box.Seal(textKind, m.bind(v.ask.ID), b)
}

// Open fills v with what a text has sealed for the limit and key of a. The error is ErrForeign
// or ErrExpired.
func (m *Reservations) Open(v *Reservation, a *wire.Ask, text string) error {
	v.of, v.state, v.ask = m, carried, *a
	plain, err := m.cfg.Box.Open(textKind, m.bind(a.ID), text)
	if err != nil || !v.parse(plain) {
		return ErrForeign
	}
	v.by.Algorithm, v.by.Durable = a.Limit.Algorithm, a.Limit.Durable
	steady, day := m.cfg.Clock.Steady(), m.cfg.Clock.TimeOfDay()
	left := v.expires - day
	if left <= 0 {
		return ErrExpired
	}
	v.spent += steady - day
	v.expires = steady + min(left, int64(v.life))
	return nil
}

// parse reads what Text has sealed. The times are those of the day.
func (v *Reservation) parse(plain []byte) bool {
	if len(plain) != textBytes && len(plain) != bucketTextBytes {
		return false
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(plain[8*i:]) }
	v.marker = bucket.ID{Hi: word(0), Lo: word(1)}
	v.ask.Receipt, v.ask.ResetNumber, v.ask.Units = bucket.Receipt(word(2)), word(3), int64(word(4))
	v.spent, v.expires, v.life = int64(word(5)), int64(word(6)), time.Duration(word(7))
	v.ask.StoodIn = plain[64] == 1
	v.by = bucket.Limit{}
	if numbers := plain[textBytes:]; len(numbers) > 0 {
		word := func(i int) uint64 { return binary.LittleEndian.Uint64(numbers[8*i:]) }
		v.by = bucket.Limit{Algorithm: bucket.TokenBucket, Version: word(0), Rate: int64(word(1)), Per: time.Duration(word(2)), Burst: int64(word(3))}
		if v.by.Validate() != nil {
			return false
		}
	}
	return v.ask.Units > 0 && v.life >= leastLife && v.life <= longestLife
}

// bind returns what a text is bound to: a count, and the region that counts it.
func (m *Reservations) bind(id bucket.ID) []byte {
	b := identity.Bytes(id)
	return append(b[:], m.cfg.Region...)
}

// newMarker returns the ID of a count that nobody else has.
func (m *Reservations) newMarker() bucket.ID {
	var b [24]byte
	binary.LittleEndian.PutUint64(b[:], m.cfg.Salt[0])
	binary.LittleEndian.PutUint64(b[8:], m.cfg.Salt[1])
	binary.LittleEndian.PutUint64(b[16:], m.markers.Add(1))
	return m.cfg.Identity.ID(identity.Prefix("(reservations)"), string(b[:]))
}
