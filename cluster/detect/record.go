package detect

import (
	"cmp"
	"time"
)

// The bounds of a record: it travels in packets of 1,400 bytes of gossip, and in at most 512
// bytes of metadata.
const (
	MaxName   = 128 // bytes
	MaxRegion = 64
	MaxAddr   = 261 // a DNS name of 255 bytes and a port
	// maxEpoch is the maximum epoch and turn. It leaves room for a member to answer every
	// tombstone that it receives.
	maxEpoch = 1 << 48
)

// Record is the information about one member that all members replicate. A record that has
// Gone set is a tombstone.
type Record struct {
	Name, Addr, Region string
	Born               int64  // Unix nanoseconds, by the clock of the member
	Epoch              uint64 // number of its own tombstones that it has answered; only the member itself raises it
	Turn               uint64 // number of its announcements; only the member itself raises it
	Announced          State  // the last state that it has announced
	// Gone is when it left, was replaced or was forgotten. It is zero in all other cases. It
	// travels as an age.
	Gone time.Time
}

// IsGone reports whether r is a tombstone.
func (r Record) IsGone() bool { return !r.Gone.IsZero() }

// IsValid reports whether r is a record that a member sends.
func (r Record) IsValid() bool {
	return r.Name != "" && len(r.Name) <= MaxName && r.Addr != "" && len(r.Addr) <= MaxAddr && len(r.Region) <= MaxRegion &&
		r.Epoch <= maxEpoch && r.Turn <= maxEpoch && !(r.IsGone() && r.Epoch == maxEpoch) && r.Announced.IsAnnounced()
}

// compare orders the records of one name. The first three comparisons have a meaning: a later
// epoch supersedes an earlier one, a tombstone supersedes the records of its epoch and the
// later tombstones, and a later announcement supersedes an earlier one. The remaining
// comparisons make the order total.
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

// goneBy returns Gone, and a time after all others if r is not a tombstone.
func (r Record) goneBy() time.Time {
	if r.IsGone() {
		return r.Gone
	}
	return time.Unix(1<<62, 0)
}
