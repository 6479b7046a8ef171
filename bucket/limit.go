package bucket

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/enum"
)

// Algorithm says how a limit counts. The zero value is SlidingWindow.
type Algorithm uint8

const (
	// SlidingWindow keeps two counters and estimates the units of the last
	// Per as if those of the window before had come evenly, one by one.
	SlidingWindow Algorithm = iota
	// SlidingLog remembers each admission: exact in every window of Per.
	SlidingLog
	// FixedWindow counts in windows of Per, the first of which starts at the
	// key's first ask, or in those of a calendar, which Start names.
	FixedWindow
	// TokenBucket holds at most Burst units and refills at Rate per Per.
	TokenBucket
	// LeakyBucket is TokenBucket's arithmetic as a queue: at most Burst units
	// wait, and they are served at Rate per Per.
	LeakyBucket
	// InFlight has at most Rate units held at once. They come back as they are released,
	// not with time, so that a Store does not count them.
	InFlight
)

// algorithmNames are those that files, metrics and logs have.
var algorithmNames = enum.Table[Algorithm]{What: "algorithm", Names: []string{"sliding_window", "sliding_log", "fixed_window", "token_bucket", "leaky_bucket", "in_flight"}}

// String returns the name that rules files have, like "sliding_window".
func (a Algorithm) String() string { return algorithmNames.String(a) }

// MarshalText returns the name, and an error for an unknown Algorithm.
func (a Algorithm) MarshalText() ([]byte, error) { return algorithmNames.MarshalText(a) }

// UnmarshalText reads the name. The error says what to write.
func (a *Algorithm) UnmarshalText(name []byte) error { return algorithmNames.UnmarshalText(a, name) }

func (a Algorithm) isBucket() bool { return a == TokenBucket || a == LeakyBucket }

// IsBucket reports whether the limit has a level that falls, and a Burst. The others count
// in windows, and may have a Start.
func (l *Limit) IsBucket() bool { return l.Algorithm.isBucket() }

// Limit is the numbers of a limit, all that the arithmetic needs of it.
//
// A share of a limit is a Limit too, and may be of nothing: a Rate of 0 never
// refills, and a capacity of 0 denies every ask. As a Burst of 0 stands for Rate,
// a share of a Burst that comes to nothing is written as a Burst below zero. Whole
// says what it is a share of: debts are held to that, as they may be of all of it.
type Limit struct {
	Algorithm Algorithm
	Rate      int64         // units ...
	Per       time.Duration // ... per this long; 0 of InFlight
	Burst     int64         // capacity of TokenBucket and LeakyBucket; Rate if zero
	Version   uint64        // of the rules it came from; the higher one holds
	Whole     int64         // capacity of the limit that this is a share of; zero if it is none
	Start     int64         // FixedWindow: when the calendar's window begins that the ask is for. SlidingWindow: when one of its windows does, which follow each other Per by Per. Zero: windows start at the key's first ask

	// Durable has snapshots hold the counts of this limit. It judges nothing.
	Durable bool

	// Of the limit that this is a Part of, else zero. They judge nothing.
	wholeRate int64
	wholePer  time.Duration
}

// The ranges that Validate accepts.
const (
	maxUnits  = 1_000_000_000_000 // of Rate and Burst
	maxLogged = 100_000           // of a SlidingLog's Rate, which costs memory for each unit
	minPer    = time.Millisecond
	maxPer    = 366 * 24 * time.Hour
	maxStart  = 1 << 62
	maxRefill = 100 * 365 * 24 * time.Hour // of a whole Burst: twice it, and the year 2026, fit in int64 nanoseconds
)

// Capacity is the most that the limit has to give at one time: Rate, or for the
// buckets Burst (Rate if that is zero). It is never below zero.
func (l *Limit) Capacity() int64 { return int64(l.capacity()) }

// Validate reports everything that is wrong with the limit at once, each with
// the field and its value: an unknown Algorithm, a Rate outside 1 to 10¹² (for a
// SlidingLog, to 100,000), a Per outside 1 ms to 366 days (of InFlight, but 0), a Burst outside 0 to
// 10¹², a Burst for an algorithm that has none, a Burst that takes more than 100
// years to refill, a Whole outside 0 to 10¹², and a Start for any but FixedWindow and
// SlidingWindow or more than 146 years from the epoch. It returns nil if all is well.
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
			report("Per is %v: an in_flight limit has none; leave it zero", l.Per)
		}
	} else if l.Per < minPer || l.Per > maxPer {
		report("Per is %v: it must be from %v to %v", l.Per, minPer, maxPer)
	}
	switch {
	case !l.Algorithm.isBucket():
		if l.Burst != 0 {
			report("Burst is %d: only token_bucket and leaky_bucket have one; leave it zero", l.Burst)
		}
	case l.Burst < 0 || l.Burst > maxUnits:
		report("Burst is %d: it must be from 1 to %d units, or 0 for as much as Rate", l.Burst, int64(maxUnits))
	case l.Rate >= 1 && l.Per >= minPer && mulDiv(uint64(l.Burst), uint64(l.Per), uint64(l.Rate)) > uint64(maxRefill):
		report("Burst is %d: at %d per %v it takes more than 100 years to refill; lower it", l.Burst, l.Rate, l.Per)
	}
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

// is reports whether two limits judge the same. It takes a check a nanosecond less than !=,
// for which the compiler calls a function that compares memory.
func (l *Limit) is(o *Limit) bool {
	return l.Algorithm == o.Algorithm && l.Rate == o.Rate && l.Per == o.Per && l.Burst == o.Burst && l.Version == o.Version && l.Start == o.Start && l.Whole == o.Whole && l.Durable == o.Durable
}

// DurableFrom is the Per from which limits are Durable unless they state otherwise.
const DurableFrom = time.Hour

// DurableByPer reports whether a limit of this Per is Durable if nothing is stated.
func (l *Limit) DurableByPer() bool { return l.Per >= DurableFrom && l.Algorithm != InFlight }

// otherwise marks the code of a limit whose Durable is not what its Per says.
const otherwise = 0x80

// Code returns the byte that stands for Algorithm and Durable in messages.
func (l *Limit) Code() byte {
	if l.Durable != l.DurableByPer() {
		return byte(l.Algorithm) | otherwise
	}
	return byte(l.Algorithm)
}

// SetCode sets Algorithm and Durable, of a limit that has its Per already.
func (l *Limit) SetCode(code byte) {
	l.Algorithm = Algorithm(code &^ otherwise)
	l.Durable = l.DurableByPer() != (code&otherwise != 0)
}

// The numbers as the arithmetic wants them, in ranges where nothing overflows
// also when nobody called Validate.

func (l *Limit) rate() uint64 { return uint64(min(max(l.Rate, 0), maxUnits)) }
func (l *Limit) per() uint64  { return uint64(max(l.Per, 1)) }

// most is what may be used at most, debts included.
func (l *Limit) most() uint64 { return 2 * max(l.capacity(), uint64(min(max(l.Whole, 0), maxUnits))) }

func (l *Limit) capacity() uint64 {
	if l.Algorithm.isBucket() && l.Burst != 0 {
		return uint64(min(max(l.Burst, 0), maxUnits))
	}
	return l.rate()
}
