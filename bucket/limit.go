package bucket

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/enum"
)

// Algorithm is the algorithm of a limit. The zero value is SlidingWindow.
type Algorithm uint8

const (
	// SlidingWindow keeps two counters, and estimates the units of the last Per as if the
	// units of the previous window had been spent evenly, one by one.
	SlidingWindow Algorithm = iota
	// SlidingLog records each admission, which is exact in every window of length Per.
	SlidingLog
	// FixedWindow counts in windows of length Per. A window starts at the first ask of the key
	// after the previous window has ended, or at that end if a debt is left. With Start, the
	// windows are the windows of a calendar.
	FixedWindow
	// TokenBucket holds at most Burst units and refills at Rate per Per.
	TokenBucket
	// LeakyBucket uses the arithmetic of TokenBucket as a queue: at most Burst units wait,
	// and they are served at Rate per Per.
	LeakyBucket
	// InFlight allows at most Rate units to be held at once. Units return when they are
	// released, not with time, so a Store does not count them.
	InFlight
)

// algorithmNames are the names in files, metrics and logs.
var algorithmNames = enum.Table[Algorithm]{What: "algorithm", Names: []string{"sliding_window", "sliding_log", "fixed_window", "token_bucket", "leaky_bucket", "in_flight"}}

// String returns the name that rules files use, like "sliding_window", or a text with the
// number of an unknown Algorithm.
func (a Algorithm) String() string { return algorithmNames.String(a) }

// MarshalText returns the name, and an error for an unknown Algorithm.
func (a Algorithm) MarshalText() ([]byte, error) { return algorithmNames.MarshalText(a) }

// UnmarshalText parses the name. If the name is unknown, a is unchanged, and the error
// suggests valid names.
func (a *Algorithm) UnmarshalText(name []byte) error { return algorithmNames.UnmarshalText(a, name) }

func (a Algorithm) isBucket() bool { return a == TokenBucket || a == LeakyBucket }

// IsBucket reports whether the Algorithm is TokenBucket or LeakyBucket: such a limit has a
// level that falls, and can have a Burst.
func (l *Limit) IsBucket() bool { return l.Algorithm.isBucket() }

// Limit contains the numbers of a limit. The arithmetic needs no other information about a
// limit.
//
// A share of a limit is a Limit too, and can be empty: with a Rate of 0 it never refills, and
// with a capacity of 0 it denies every ask of a unit or more. Because a Burst of 0 means Rate,
// an empty share of a Burst is represented by a negative Burst. Whole is the capacity of the limit that the
// share belongs to. It bounds debts, because a debt may be as large as the whole limit.
type Limit struct {
	Algorithm Algorithm
	Rate      int64         // number of units per Per; for InFlight, number of units that may be held at once
	Per       time.Duration // time in which Rate units are granted or recover; 0 for InFlight
	Burst     int64         // capacity of TokenBucket and LeakyBucket; Rate if zero
	Version   uint64        // version of the rules that contain the limit; the limit with the higher version judges
	Whole     int64         // capacity of the limit of which this limit is a share; zero if this limit is neither a share nor a timer (TimerLimit)
	Start     int64         // FixedWindow: the start of the calendar window of the ask. SlidingWindow: the start of any window, because the windows follow each other by Per. Zero: windows start at the first ask of the key

	// Durable makes snapshots contain the counts of this limit. Decisions do not depend on
	// it.
	Durable bool

	// MaxOfCopies makes a merge of two copies of a count keep the copy with more used units, because both
	// record the same event, such as the end of a timer. Otherwise a merge adds the units that only one
	// copy has. With MaxOfCopies, a Debit of n units raises the level of a bucket to n units, unless the
	// level is higher. Takes do not depend on MaxOfCopies.
	MaxOfCopies bool

	// Keep is the number of units that an ask with this limit leaves for other asks, from 0 to
	// less than the capacity. To such an ask the capacity is lower by Keep. Keep belongs to the
	// ask: a Store does not store it, and asks with different Keep share a count.
	Keep int64

	// These are the Rate and Per of the limit from which Scale computed this limit, else zero.
	// They identify a part of a limit (isPartOf). Decisions depend on them only while units are lent
	// (drainedUnits).
	wholeRate int64
	wholePer  time.Duration
}

// These are the ranges that Validate accepts.
const (
	maxUnits  = 1_000_000_000_000 // maximum of Rate and Burst
	maxLogged = 100_000           // maximum Rate of a SlidingLog, which uses memory for each unit
	minPer    = time.Millisecond
	maxPer    = 366 * 24 * time.Hour
	maxStart  = 1 << 62
	maxRefill = 100 * 365 * 24 * time.Hour // time to refill a whole Burst: twice this time, added to the year 2026, fits in int64 nanoseconds
)

// Capacity returns the maximum number of units that the limit grants at one time: Rate, or
// for the buckets Burst (Rate if Burst is zero). It is never below zero.
func (l *Limit) Capacity() int64 { return int64(l.capacity()) }

// Usable returns the maximum number of units that asks with this limit are granted at one time:
// the Capacity without Keep. It is never below zero.
func (l *Limit) Usable() int64 { return int64(l.usable()) }

// Keeping returns l with the Keep of the limit in the argument asked, in proportion to the capacities. The
// usable units are rounded down, so the usable units of all parts of a limit are at most those of the limit.
func (l *Limit) Keeping(asked *Limit) Limit {
	k := *l
	k.Keep = 0
	if whole := asked.capacity(); asked.Keep > 0 && whole > 0 {
		k.Keep = int64(l.capacity() - mulDiv(l.capacity(), asked.usable(), whole))
	}
	return k
}

// Validate reports all invalid fields of the limit at once, each with its value: an unknown
// Algorithm, a Rate outside 1 to 10¹² (for a SlidingLog, 1 to 100,000), a Per outside 1 ms to
// 366 days (for InFlight, any Per but 0), a Burst outside 0 to 10¹², a Burst for an algorithm
// without one, a Burst that takes more than 100 years to refill, a Whole outside 0 to 10¹²,
// a Keep below 0 or not below the capacity, a Keep for LeakyBucket or InFlight,
// and a Start for an algorithm other than FixedWindow and SlidingWindow, or more than 146
// years from the epoch. It returns nil if the limit is valid.
func (l *Limit) Validate() error {
	var problems []error
	report := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf(format, args...))
	}
	if l.Algorithm > InFlight {
		report("Algorithm is %d: choose SlidingWindow, SlidingLog, FixedWindow, TokenBucket, LeakyBucket or InFlight", uint8(l.Algorithm))
	}
	if l.Rate < 1 || l.Rate > maxUnits {
		report("Rate is %d: it must be from 1 to %d units", l.Rate, int64(maxUnits))
	} else if l.Algorithm == SlidingLog && l.Rate > maxLogged {
		report("Rate is %d: a sliding_log remembers every admission, and takes at most %d; use sliding_window", l.Rate, maxLogged)
	}
	if l.Algorithm == InFlight {
		if l.Per != 0 {
			report("Per is %v: in_flight limits have no Per; leave it zero", l.Per)
		}
	} else if l.Per < minPer || l.Per > maxPer {
		report("Per is %v: it must be from %v to %v", l.Per, minPer, maxPer)
	}
	switch {
	case !l.Algorithm.isBucket():
		if l.Burst != 0 {
			report("Burst is %d: leave Burst zero, because only token_bucket and leaky_bucket have a Burst", l.Burst)
		}
	case l.Burst < 0 || l.Burst > maxUnits:
		report("Burst is %d: it must be from 1 to %d units, or 0 for as much as Rate", l.Burst, int64(maxUnits))
	case l.Rate >= 1 && l.Per >= minPer && mulDiv(uint64(l.Burst), uint64(l.Per), uint64(l.Rate)) > uint64(maxRefill):
		report("Burst is %d: at %d per %v it takes more than 100 years to refill; lower it", l.Burst, l.Rate, l.Per)
	}
	l.checkKeep(report)
	if l.Whole < 0 || l.Whole > maxUnits {
		report("Whole is %d: it must be from 0 to %d units", l.Whole, int64(maxUnits))
	}
	switch {
	case l.Start == 0:
	case l.Algorithm != FixedWindow && l.Algorithm != SlidingWindow:
		report("Start is %d: only fixed_window and sliding_window have one; leave it zero", l.Start)
	case l.Start < -maxStart || l.Start > maxStart:
		report("Start is %d: it must be from %d to %d", l.Start, int64(-maxStart), int64(maxStart))
	}
	return errors.Join(problems...)
}

// checkKeep reports an invalid Keep.
func (l *Limit) checkKeep(report func(format string, args ...any)) {
	switch {
	case l.Keep == 0:
	case l.Algorithm == LeakyBucket || l.Algorithm == InFlight:
		report("Keep is %d: %v has a queue, in which each caller waits for the callers before it; leave Keep zero, and give other callers a lower limit of their own", l.Keep, l.Algorithm)
	case l.Keep < 0 || l.Keep >= max(1, l.Capacity()):
		report("Keep is %d: it must be from 0 to %d units, so that a unit is left", l.Keep, max(1, l.Capacity())-1)
	}
}

// equals reports whether the exported fields of two limits are equal, except Keep and
// MaxOfCopies. It is faster than != by a nanosecond per check, because the compiler implements
// != by a call of a function that compares memory.
func (l *Limit) equals(o *Limit) bool {
	return l.Algorithm == o.Algorithm && l.Rate == o.Rate && l.Per == o.Per && l.Burst == o.Burst && l.Version == o.Version && l.Start == o.Start && l.Whole == o.Whole && l.Durable == o.Durable
}

// DurableFrom is the Per from which on limits are Durable by default.
const DurableFrom = time.Hour

// DurableByPer reports whether a limit with this Per is Durable by default.
func (l *Limit) DurableByPer() bool { return l.Per >= DurableFrom && l.Algorithm != InFlight }

// These bits of a code are set in addition to the Algorithm.
const (
	otherwise   = 0x80 // Durable differs from the default for Per
	maxOfCopies = 0x40 // MaxOfCopies is set
)

// Code returns the byte that represents Algorithm, Durable and MaxOfCopies in messages.
func (l *Limit) Code() byte {
	code := byte(l.Algorithm)
	if l.Durable != l.DurableByPer() {
		code |= otherwise
	}
	if l.MaxOfCopies {
		code |= maxOfCopies
	}
	return code
}

// SetCode sets Algorithm, Durable and MaxOfCopies. The Per of the limit must be set.
func (l *Limit) SetCode(code byte) {
	l.Algorithm = Algorithm(code &^ (otherwise | maxOfCopies))
	l.Durable, l.MaxOfCopies = l.DurableByPer() != (code&otherwise != 0), code&maxOfCopies != 0
}

// The following methods limit the numbers to ranges in which no arithmetic overflows, even if
// Validate was not called.

func (l *Limit) rate() uint64 { return uint64(min(max(l.Rate, 0), maxUnits)) }
func (l *Limit) per() uint64  { return uint64(max(l.Per, 1)) }

// maxUsage returns the maximum number of units that may be used, including debts.
func (l *Limit) maxUsage() uint64 {
	return 2 * max(l.capacity(), uint64(min(max(l.Whole, 0), maxUnits)))
}

// usable returns the units that asks with this limit may use.
func (l *Limit) usable() uint64 {
	if l.Keep <= 0 {
		return l.capacity()
	}
	return sub(l.capacity(), uint64(l.Keep))
}

func (l *Limit) capacity() uint64 {
	if l.Algorithm.isBucket() && l.Burst != 0 {
		return uint64(min(max(l.Burst, 0), maxUnits))
	}
	return l.rate()
}
