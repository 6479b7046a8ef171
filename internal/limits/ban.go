package limits

import (
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
)

// Ban is a weir.Ban. The zero Ban bans no key.
type Ban struct {
	Denials int64
	Within  time.Duration
	For     wire.Ban
}

const maxBanDenials = 10_000

// check reports invalid fields.
func (b *Ban) check(wrong func(format string, args ...any)) {
	if *b == (Ban{}) {
		return
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

// Strikes returns the limit of the denials that ban a key, for a Ban of a limit with the given Version. Its
// Rate is 0 if b bans no key.
func (b *Ban) Strikes(version uint64) (strikes bucket.Limit) {
	if *b == (Ban{}) {
		return strikes
	}
	strikes = bucket.Limit{Algorithm: bucket.SlidingLog, Rate: b.Denials, Per: b.Within, Version: version}
	strikes.Durable = strikes.DurableByPer()
	return strikes
}
