package weir

import (
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
)

// Ban bans the keys of a limit that are denied too often. The zero Ban bans none. A banned key is denied
// every check, Peek and Wait until the ban ends or Limiter.Reset releases it. Debits and refunds count as
// usual.
//
// Denials by the owner of a key or its stand-in count, and the same denials as this node repeats them
// (Pushback). Denials within a share, of shadows, of a Wait and of bans do not.
type Ban struct {
	Denials int64         // denials within Within that ban a key, 1 to 10,000
	Within  time.Duration // 1 ms to 366 days
	For     BanLengths
}

// BanLengths are the lengths of the first ban of a key and of the next bans, in whole seconds from 1 s to
// 366 days, and zeros after the last length, which applies to all further bans. A ban is a next ban if the
// earlier bans began within the last 24 hours, or within twice the longest length if that is longer.
type BanLengths [wire.BanSteps]time.Duration

const maxBanDenials = 10_000

// check reports invalid fields of a Ban of a limit with the given Algorithm.
func (b *Ban) check(of Algorithm, wrong func(format string, args ...any)) {
	if *b == (Ban{}) {
		return
	}
	if of == InFlight {
		wrong("Ban is set and Algorithm in_flight: leave it zero, only denials of a rate ban a key")
	}
	if b.Denials < 1 || b.Denials > maxBanDenials {
		wrong("Ban.Denials is %d: it must be from 1 to %d", b.Denials, maxBanDenials)
	}
	if err := (&bucket.Limit{Rate: 1, Per: b.Within}).Validate(); err != nil {
		wrong("Ban.Within: %w", err)
	}
	for i, d := range b.For {
		switch {
		case d == 0 && i == 0:
			wrong("Ban.For is zero: it must be the length of a ban, from 1s to %v", wire.LongestBan)
		case d != 0 && i > 0 && b.For[i-1] == 0:
			wrong("Ban.For[%d] is %v after a zero: put the zeros last", i, d)
		case d != 0 && (d < time.Second || d > wire.LongestBan || d%time.Second != 0):
			wrong("Ban.For[%d] is %v: it must be whole seconds, from 1s to %v", i, d, wire.LongestBan)
		}
	}
}

// bans is the Ban of a Limiter, as its asks carry it.
type bans struct {
	strikes bucket.Limit // the denials that ban a key; a Rate of 0 bans none
	lengths wire.Ban
}

// bans returns b as the asks of a limit with the given Version carry it.
func (b *Ban) bans(version uint64) (carried bans) {
	if *b == (Ban{}) {
		return carried
	}
	carried.strikes = bucket.Limit{Algorithm: bucket.SlidingLog, Rate: b.Denials, Per: b.Within, Version: version}
	carried.strikes.Durable = carried.strikes.DurableByPer()
	for i, d := range b.For {
		carried.lengths[i] = uint32(d / time.Second)
	}
	return carried
}

// Bans are bans in the whole cluster.
type Bans struct {
	Bans    []BannedKey // the last to end first
	Missing []string    // names of members that did not answer, or run a release without bans
}

// BannedKey is a key that is banned.
type BannedKey struct {
	Limit  string
	ID     [16]byte  // the ID that Limiter.ID returns, and ResetID accepts
	Key    string    // the key as callers passed it, or its masked text; empty if Known is false
	Known  bool      // a node that answered has the text of the key, and may send it (Node.TopKeys)
	Masked bool      // Key is a masked text, because the key is a secret (Limit.SecretKeys)
	Since  time.Time // zero if the node that began the ban has ended
	Until  time.Time
}
