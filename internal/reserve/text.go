package reserve

import (
	"encoding/binary"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/epoch"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/wire"
)

// The text of a Reservation, before it is sealed: marker 16 | receipt 8 | reset number 8 | units 8
// | age of the receipt 8 | time until the end of the Reservation 8 | life 8 | granted without
// authority 1 | time of day 8 | epoch 8 | age of the epoch 8 | for a bucket, the numbers of the
// receipt: version 8 | rate 8 | per 8 | burst 8. Durations are in nanoseconds, at the moment of
// sealing. The epoch shows how long ago that moment was. If the opening node does not know the
// epoch, or if all nodes have stopped since, the node uses the time of day.
const (
	textKind        = 1
	textBytes       = 89
	bucketTextBytes = textBytes + 32
)

// Text returns v as a sealed text, which other nodes can open from now on. The text is empty if v
// is settled or has expired.
func (v *Reservation) Text() string {
	m := v.of
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.state == settled || v.isExpired() {
		return ""
	}
	if v.state == reserved {
		v.state, v.marker = carried, m.newMarker()
		m.open.remove(v.expires)
		m.carried.Add(1)
	}
	b := make([]byte, 0, bucketTextBytes)
	now := m.cfg.Clock.Monotonic()
	for _, x := range [...]uint64{
		v.marker.Hi, v.marker.Lo, uint64(v.ask.Spent.Receipt), v.ask.Spent.ResetNumber, uint64(v.ask.Units),
		uint64(now - v.spent), uint64(v.expires - now), uint64(v.life),
	} {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	stoodIn := byte(0)
	if v.ask.Spent.StoodIn {
		stoodIn = 1
	}
	b = append(b, stoodIn)
	run := m.cfg.Run.Now(now)
	for _, x := range [...]uint64{uint64(m.cfg.Clock.TimeOfDay()), run.Epoch, uint64(run.Age)} {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	if by := &v.by; by.Rate > 0 {
		for _, x := range [...]uint64{by.Version, uint64(by.Rate), uint64(by.Per), uint64(by.Burst)} {
			b = binary.LittleEndian.AppendUint64(b, x)
		}
	}
	return m.cfg.Box.Seal(textKind, m.bind(v.ask.ID), b)
}

// Open initializes v from a text that was sealed for the limit and key of a. The error is
// ErrForeign or env.ErrExpired.
func (m *Reservations) Open(v *Reservation, a *wire.Ask, text string) error {
	v.of, v.state, v.ask = m, carried, *a
	plain, err := m.cfg.Box.Open(textKind, m.bind(a.ID), text)
	if err != nil || !v.parse(plain) {
		return ErrForeign
	}
	v.by.Algorithm, v.by.Durable = a.Limit.Algorithm, a.Limit.Durable
	now := m.cfg.Clock.Monotonic()
	ago, placed := m.cfg.Run.TimeSince(v.sealed.run, now)
	if !placed {
		ago = max(0, m.cfg.Clock.TimeOfDay()-v.sealed.day)
	}
	left := v.expires - ago
	if left <= 0 {
		return env.ErrExpired
	}
	v.spent = now - v.spent - ago
	v.expires = now + min(left, int64(v.life))
	return nil
}

// parse reads the plaintext that Text has sealed. It sets spent and expires to the
// durations at the time of sealing.
func (v *Reservation) parse(plain []byte) bool {
	if len(plain) != textBytes && len(plain) != bucketTextBytes {
		return false
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(plain[8*i:]) }
	v.marker = bucket.ID{Hi: word(0), Lo: word(1)}
	v.ask.Spent.Receipt, v.ask.Spent.ResetNumber, v.ask.Units = bucket.Receipt(word(2)), word(3), int64(word(4))
	v.spent, v.expires, v.life = int64(word(5)), int64(word(6)), time.Duration(word(7))
	v.ask.Spent.StoodIn = plain[64] == 1
	at := plain[65:]
	v.sealed.day = int64(binary.LittleEndian.Uint64(at))
	v.sealed.run = epoch.Moment{Epoch: binary.LittleEndian.Uint64(at[8:]), Age: int64(binary.LittleEndian.Uint64(at[16:]))}
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

// bind returns the data to which a text is bound: a count, and the region that counts it.
func (m *Reservations) bind(id bucket.ID) []byte {
	b := identity.Bytes(id)
	return append(b[:], m.cfg.Region...)
}

// newMarker returns the ID of a count that no other Reservation has.
func (m *Reservations) newMarker() bucket.ID {
	var b [24]byte
	binary.LittleEndian.PutUint64(b[:], m.cfg.Salt[0])
	binary.LittleEndian.PutUint64(b[8:], m.cfg.Salt[1])
	binary.LittleEndian.PutUint64(b[16:], m.markers.Add(1))
	return m.cfg.Identity.ID(identity.Prefix("(reservations)"), string(b[:]))
}
