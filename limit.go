package weir

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/internal/limits"
	"github.com/weir-go/weir/internal/wire"
)

// Algorithm says how a limit counts; docs/algorithms.md says how to choose.
type Algorithm = bucket.Algorithm

// The algorithms. The zero value is SlidingWindow.
const (
	SlidingWindow = bucket.SlidingWindow // two counters and a weighted estimate: small, smooth, nearly exact
	SlidingLog    = bucket.SlidingLog    // exact in every window; some bytes for each admission
	FixedWindow   = bucket.FixedWindow   // exact in windows that start at the key's first ask, or with the Calendar
	TokenBucket   = bucket.TokenBucket   // a burst, then a steady rate
	LeakyBucket   = bucket.LeakyBucket   // the same as a queue: Wait serves in order at the rate
	InFlight      = bucket.InFlight      // at most Rate units held at once: only Hold, WaitHold and Peek; without Per
)

// Scope says over what a limit counts.
type Scope uint8

const (
	Regional Scope = iota // one count for each region
	Global                // one limit over all regions of Config.Regions: each has a part, and grants of it what it does not need
)

// PartitionPolicy says what a node may still admit while a member of the roster
// cannot be reached, or the roster is below Config.Expect, whose members count as
// missing then. A node that reaches no member that could answer is a side of its own.
// docs/guarantees.md has the bounds, and docs/partitions.md what they are of few units.
type PartitionPolicy uint8

const (
	// MajorityShare: the nodes that reach each other, a side, spend the whole limit
	// if they are more than half of the roster; else k of n nodes spend ⌊L·k/n⌋,
	// which may be nothing. All sides together stay below 1.5·L.
	MajorityShare PartitionPolicy = iota
	// FairShare: each node has a part of the limit, and a side the sum of its
	// nodes', a majority too. All sides together have L.
	FairShare
	// FailOpen: each side has the whole limit, and each node has until its side
	// agrees on who answers.
	FailOpen
	// FailClosed: a side has the whole limit if it is more than half of the roster,
	// and denies if not.
	FailClosed
)

// Calendar has the windows of a FixedWindow begin where the calendar's do, in
// Limit.Zone.
type Calendar uint8

const (
	NoCalendar Calendar = iota // windows of Per that start at the key's first ask
	Day                        // from midnight to midnight, 23 to 25 hours
	Week                       // from Monday, as in ISO 8601
	Month                      // from its first day
)

// A PartitionPolicy has the number of the policy in a request, and a Calendar that of the unit in
// package limits. These lines compile only while the last numbers are equal.
var (
	_ = [1]struct{}{}[FailClosed-PartitionPolicy(wire.FailClosed)]
	_ = [1]struct{}{}[Month-Calendar(limits.Month)]
)

// Durability selects limits whose counts snapshots (Config.Snapshots) have, so that
// they outlive a stop of all nodes.
type Durability uint8

const (
	DurableIfLong Durability = iota // with a Calendar, or a Per of an hour or more
	Durable
	NotDurable
)

// Limit is a policy: how many units of what, how fast.
type Limit struct {
	Name      string          // required, at most 255 bytes; scopes the count
	Algorithm Algorithm       // SlidingWindow if zero
	Rate      int64           // units ..., 1 to 10^12
	Per       time.Duration   // ... per this long, 1 ms to 366 days; zero with a Calendar
	Burst     int64           // TokenBucket and LeakyBucket: the capacity; Rate if zero. Invalid for the windows
	Scope     Scope           // Regional if zero
	Partition PartitionPolicy // MajorityShare if zero

	// Calendar is for a FixedWindow: Rate units in each day, week or month of
	// Zone, in the place of Per, which is zero then. A window is named by its
	// date, by the clock of the node that asks; where clocks differ, a key's
	// count keeps the latest name, so that no window is counted twice.
	Calendar Calendar
	Zone     string // an IANA name such as "Europe/Berlin", UTC if empty; only with a Calendar

	// Version is that of the rules it came from. Where nodes disagree about a
	// limit the higher one holds; at equal Versions each check is judged by
	// its own numbers over the same used units, and a new Algorithm needs a
	// higher Version.
	Version uint64

	// NoLeases has each decision made by the owner of the key. Else owners lend units
	// of keys that are hot, so that the nodes that ask for them decide most checks
	// themselves, as exactly: see Leased.
	NoLeases bool

	// SecretKeys declares that keys of this limit are secrets, such as API keys. Node.TopKeys
	// then returns "…" and at most the last four characters of such a key, or only "…" for a key
	// of less than 16 bytes. SecretKeys has no effect on counts.
	SecretKeys bool

	// Durable is DurableIfLong if zero. It has no part in what is decided. An InFlight limit
	// has none: its holds end with the processes that have them.
	Durable Durability

	// Varies reports whether other numbers at the same Name and Version are meant: they
	// depend on the key, as by its tier, or change without a new Version. They are
	// not compared with others, see Node.Limiter. The Algorithm may not vary.
	Varies bool
}

// Validate reports everything that is wrong with the limit at once, nil if
// nothing is. Each error is ErrInvalid.
func (l Limit) Validate() error {
	_, err := l.check()
	return err
}

// check is Validate, and the zone of a Calendar, which costs the reading of a file.
func (l *Limit) check() (loc *time.Location, err error) {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w Limit: "+format, append([]any{ErrInvalid}, args...)...))
	}
	if l.Name == "" {
		wrong("Name is empty: give each limit a name, it scopes the count")
	} else if len(l.Name) > wire.MaxNameBytes {
		wrong("Name has %d bytes: use at most %d", len(l.Name), wire.MaxNameBytes)
	}
	numbers := l.numbers()
	if l.Algorithm == InFlight {
		if l.Per != 0 {
			wrong("Per is %v and Algorithm in_flight: leave Per zero, units come back as they are released", l.Per)
			numbers.Per = 0
		}
		if l.Durable == Durable {
			wrong("Durable is set and Algorithm in_flight: leave it zero, holds end with the processes that have them")
		}
		if l.Scope == Global {
			wrong("Scope is global and Algorithm in_flight: holds are counted in one region; use regional")
		}
	}
	if l.Calendar != NoCalendar {
		numbers.Per = 24 * time.Hour
	}
	if err := numbers.Validate(); err != nil {
		wrong("%w", err)
	}
	switch {
	case l.Calendar > Month:
		wrong("Calendar %d is unknown: use NoCalendar, Day, Week or Month", l.Calendar)
	case l.Calendar == NoCalendar && l.Zone != "":
		wrong("Zone is %q and there is no Calendar: set Calendar to Day, Week or Month, or leave Zone empty", l.Zone)
	case l.Calendar != NoCalendar:
		if l.Algorithm != FixedWindow {
			wrong("Calendar is %v and Algorithm %v: only fixed_window begins with the calendar", l.Calendar, l.Algorithm)
		}
		if l.Per != 0 {
			wrong("Per is %v and Calendar %v: leave Per zero, the calendar says how long a window is", l.Per, l.Calendar)
		}
		if loc, err = limits.LoadZone(l.Zone); err != nil {
			wrong("Zone is %q: %w", l.Zone, err)
		}
	}
	switch l.Scope {
	case Regional, Global:
	default:
		wrong("Scope %d is unknown: use Regional or Global", l.Scope)
	}
	if l.Partition > FailClosed {
		wrong("Partition %d is unknown: use MajorityShare, FairShare, FailOpen or FailClosed", l.Partition)
	}
	if l.Durable > NotDurable {
		wrong("Durable %d is unknown: use DurableIfLong, Durable or NotDurable", l.Durable)
	}
	return loc, errors.Join(errs...)
}

// durable reports whether snapshots have the counts of the limit.
func (l *Limit) durable() bool {
	switch l.Durable {
	case Durable:
		return l.Algorithm != InFlight
	case NotDurable:
		return false
	}
	return l.Calendar != NoCalendar || l.Per >= bucket.DurableFrom && l.Algorithm != InFlight
}

// numbers is what the arithmetic needs of the limit.
func (l *Limit) numbers() bucket.Limit {
	numbers := bucket.Limit{Algorithm: l.Algorithm, Rate: l.Rate, Per: l.Per, Burst: l.Burst, Version: l.Version, Durable: l.durable()}
	if l.Scope == Global && l.Algorithm == SlidingWindow {
		numbers.Start = sameWindows
	}
	return numbers
}

// sameWindows is an instant at which a window begins in all regions: as good as any
// other that is not zero.
const sameWindows = 1

// declared is the part of the limit that is compared with other limits of its Name.
func (l *Limit) declared() limits.Limit {
	return limits.Limit{
		Name: l.Name, Version: l.Version, Algorithm: l.Algorithm, Rate: l.Rate, Per: l.Per, Burst: l.Burst,
		Scope: uint8(l.Scope), Partition: wire.Policy(l.Partition), Calendar: uint8(l.Calendar), Zone: l.Zone, Varies: l.Varies,
	}
}

// describe is what a limit's numbers are in a log.
func describe(l limits.Limit) string {
	text := fmt.Sprintf("%d per %s", l.Rate, enum.Duration(l.Per))
	if l.Algorithm == InFlight {
		text = fmt.Sprintf("%d at once", l.Rate)
	}
	if c := Calendar(l.Calendar); c != NoCalendar {
		text = fmt.Sprintf("%d per calendar %v of %s", l.Rate, c, l.Zone)
	}
	if l.Burst != 0 {
		text += fmt.Sprintf(", burst %d", l.Burst)
	}
	return text + fmt.Sprintf(", %v, %v, %v", l.Algorithm, Scope(l.Scope), PartitionPolicy(l.Partition))
}

// The names of constants in files, the admin API, metrics and logs. Package bucket has those of an Algorithm.
var (
	scopeNames     = enum.Table[Scope]{What: "scope", Names: []string{"regional", "global"}}
	partitionNames = enum.Table[PartitionPolicy]{What: "partition policy", Names: []string{"majority_share", "fair_share", "fail_open", "fail_closed"}}
	calendarNames  = enum.Table[Calendar]{What: "calendar", Names: []string{"none", "day", "week", "month"}}
)

// String returns the name that rules files have, "regional" or "global".
func (s Scope) String() string { return scopeNames.String(s) }

// MarshalText returns the name, and an error for an unknown Scope.
func (s Scope) MarshalText() ([]byte, error) { return scopeNames.MarshalText(s) }

// UnmarshalText reads the name. The error says what to write.
func (s *Scope) UnmarshalText(name []byte) error { return scopeNames.UnmarshalText(s, name) }

// String returns the name that rules files have, like "majority_share".
func (p PartitionPolicy) String() string { return partitionNames.String(p) }

// MarshalText returns the name, and an error for an unknown PartitionPolicy.
func (p PartitionPolicy) MarshalText() ([]byte, error) { return partitionNames.MarshalText(p) }

// UnmarshalText reads the name. The error says what to write.
func (p *PartitionPolicy) UnmarshalText(name []byte) error {
	return partitionNames.UnmarshalText(p, name)
}

// String returns the name that rules files have, like "month"; NoCalendar is "none".
func (c Calendar) String() string { return calendarNames.String(c) }

// MarshalText returns the name, and an error for an unknown Calendar.
func (c Calendar) MarshalText() ([]byte, error) { return calendarNames.MarshalText(c) }

// UnmarshalText reads the name. The error says what to write.
func (c *Calendar) UnmarshalText(name []byte) error { return calendarNames.UnmarshalText(c, name) }
