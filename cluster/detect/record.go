package detect

import (
	"cmp"
	"time"
)

// The bounds of a record. Gossip sends records in packets of 1,400 bytes, and in metadata of at
// most 512 bytes.
const (
	MaxName   = 128 // bytes
	MaxRegion = 64  // bytes
	MaxAddr   = 261 // bytes: a DNS name of 255 bytes and a port
	// maxEpoch is the maximum epoch and the maximum turn. The epoch of a valid tombstone is less, so
	// that a member can answer every tombstone that it receives.
	maxEpoch = 1 << 48
)

// Record is the information about a member that all members replicate. A record that has
// Gone set is a tombstone.
type Record struct {
	Name, Addr, Region string
	Born               int64  // Unix nanoseconds, by the clock of the member
	Epoch              uint64 // raised by the member above the epoch of each tombstone that it answers; no other node changes it
	Turn               uint64 // incremented by the member with each announcement; no other node changes it
	Announced          State  // the last state that the member has announced
	// Gone is the time at which the member left, was replaced or was forgotten, or zero. A message
	// contains the age of the tombstone instead.
	Gone time.Time
}

// IsGone reports whether r is a tombstone.
func (r Record) IsGone() bool { return !r.Gone.IsZero() }

// IsValid reports whether a correct member can send r.
func (r Record) IsValid() bool {
	return r.Name != "" && len(r.Name) <= MaxName && r.Addr != "" && len(r.Addr) <= MaxAddr && len(r.Region) <= MaxRegion &&
		r.Epoch <= maxEpoch && r.Turn <= maxEpoch && !(r.IsGone() && r.Epoch == maxEpoch) && r.Announced.IsAnnounced()
}

// compare orders the records of a member. A later epoch supersedes an earlier epoch. Within an epoch, a
// tombstone supersedes all other records, an earlier tombstone supersedes a later tombstone, and a later
// announcement supersedes an earlier announcement. The other comparisons only make the order total.
func (r Record) compare(o Record) int {
	return cmp.Or(
		cmp.Compare(r.Epoch, o.Epoch),
		o.goneBy().Compare(r.goneBy()),
		cmp.Compare(r.Turn, o.Turn),
		cmp.Compare(r.Announced, o.Announced),
		cmp.Compare(r.Born, o.Born),
		cmp.Compare(r.Addr, o.Addr),
		cmp.Compare(r.Region, o.Region),
	)
}

// goneBy returns Gone, and a time after all other times if r is not a tombstone.
func (r Record) goneBy() time.Time {
	if r.IsGone() {
		return r.Gone
	}
	return time.Unix(1<<62, 0)
}
