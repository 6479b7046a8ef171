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

// Algorithm is the way in which a limit counts. docs/algorithms.md describes how to choose one.
type Algorithm = bucket.Algorithm

// The algorithms. The zero value is SlidingWindow.
const (
	SlidingWindow = bucket.SlidingWindow // two counters and a weighted estimate: small, smooth, nearly exact
	SlidingLog    = bucket.SlidingLog    // exact in every window; uses some bytes for each admission
	FixedWindow   = bucket.FixedWindow   // exact in windows that start at the first check of a key, with the Calendar, or if Global at multiples of Per
	TokenBucket   = bucket.TokenBucket   // a burst, then a steady rate
	LeakyBucket   = bucket.LeakyBucket   // a bucket as a queue: Wait serves callers in order of arrival, at the rate
	InFlight      = bucket.InFlight      // at most Rate units held at the same time; without Per, and only for Peek and the methods with Hold in their names
)

// Scope is the set of nodes that share a count.
type Scope uint8

const (
	Regional Scope = iota // a count for each region
	Global                // a single limit for all regions of Config.Regions: each region has a part, and lends other regions units that it does not need
)

// PartitionPolicy determines the units that a node may admit while a member of the roster is not
// reachable, or while the roster is below Config.Expect. In the latter case, the absent members
// count as missing. A node that reaches no member that could answer is a side of its own.
// docs/guarantees.md lists the bounds, and docs/partitions.md their values for small limits.
type PartitionPolicy uint8

const (
	// MajorityShare: the nodes that reach each other, a side, spend the whole limit if they are
	// more than half of the roster. Otherwise k of n nodes spend ⌊L·k/n⌋, which may be 0. All
	// sides together stay below 1.5·L.
	MajorityShare PartitionPolicy = iota
	// FairShare: each node has a part of the limit, and a side has the sum of the parts of its
	// nodes, even if it is a majority. All sides together have at most L.
	FairShare
	// FailOpen: each side has the whole limit. Until the nodes of a side agree on the members that
	// answer, each of these nodes has the whole limit.
	FailOpen
	// FailClosed: a side has the whole limit if it is more than half of the roster. Otherwise it denies.
	FailClosed
)

// Calendar selects windows of a FixedWindow that begin with a day, week or month in Limit.Zone.
type Calendar uint8

const (
	NoCalendar Calendar = iota // windows of Per that start at the first check of a key
	Day                        // from midnight to midnight; 23 to 25 hours
	Week                       // from Monday, as in ISO 8601
	Month                      // from the first day of a month
)

// A PartitionPolicy has the number of the policy in a request, and a Calendar the number of the unit in
// package limits. These lines compile only while the last numbers are equal.
var (
	_ = [1]struct{}{}[FailClosed-PartitionPolicy(wire.FailClosed)]
	_ = [1]struct{}{}[Month-Calendar(limits.Month)]
)

// Durability selects the limits whose counts are in snapshots (Config.Snapshots), so that they
// survive a stop of all nodes.
type Durability uint8

const (
	DurableIfLong Durability = iota // limits with a Calendar, or a Per of an hour or more
	Durable
	NotDurable
)

// Limit is a policy: a number of units for each period.
type Limit struct {
	Name      string          // required, at most 255 bytes; limits of the same Name share counts
	Algorithm Algorithm       // SlidingWindow if zero
	Rate      int64           // units for each Per, 1 to 10^12
	Per       time.Duration   // 1 ms to 366 days; zero with a Calendar and for InFlight
	Burst     int64           // the capacity of a TokenBucket or LeakyBucket; Rate if zero. Invalid for other algorithms
	Scope     Scope           // Regional if zero
	Partition PartitionPolicy // MajorityShare if zero

	// Keep is the number of units of the Rate, or of the Burst of a TokenBucket, that are kept for
	// critical checks (Limiter.Critical): all other checks spend at most the rest. It is less than
	// the Rate or Burst; nothing is kept if zero. Nodes with different Keep judge by their own. A
	// LeakyBucket and an InFlight limit have none.
	Keep int64

	// Calendar is valid only for a FixedWindow. The limit grants Rate units in each day, week or month of
	// Zone, and Per is zero. The date of a window is determined by the clock of the node that asks. If
	// clocks differ, a count keeps the latest window, so that no window is counted twice.
	Calendar Calendar
	Zone     string // an IANA name such as "Europe/Berlin"; UTC if empty; only with a Calendar

	// Version is the version of the rules that contain the limit. If nodes disagree about a limit,
	// the limit with the higher Version is used. If the Versions are equal, each check is judged by
	// its own numbers, with the same used units. A new Algorithm requires a higher Version.
	Version uint64

	// Ban bans the keys that are denied too often. The owner of a key makes each decision of a limit with a
	// Ban, as with NoLeases. Invalid for InFlight.
	Ban Ban

	// Pauses permits Limiter.Pause. The owner of a key makes each decision of such a limit, as with NoLeases.
	// Invalid for InFlight.
	Pauses bool

	// NoLeases disables leases (see Leased), so that the owner of a key makes each decision.
	NoLeases bool

	// SecretKeys declares that keys of this limit are secrets, such as API keys. Node.TopKeys
	// then returns "…" and at most the last four characters of such a key, or only "…" for a key
	// of less than 16 bytes. SecretKeys has no effect on counts.
	SecretKeys bool

	// Durable is DurableIfLong if zero. This field has no effect on decisions. An InFlight limit is
	// never durable: a stop of all nodes ends its holds.
	Durable Durability

	// Varies declares that the numbers may differ for the same Name and Version, because they
	// depend on the key, such as on its tier, or change without a new Version. Nodes then do not
	// compare them with other limits of the Name, see Node.Limiter. The Algorithm must not vary.
	Varies bool

	// Overridden declares that the numbers are those of an operator for a key. Only Observers use it.
	Overridden bool

	// Factor is the percentage by which the numbers were multiplied, 0 if they were not. Only Observers use it.
	Factor int64
}

// Validate returns all errors of the limit, joined, and nil for a valid limit. Each error is ErrInvalid.
func (l Limit) Validate() error {
	_, err := l.check()
	return err
}

// check validates the limit, and returns the zone of its Calendar, which is read from a file.
func (l *Limit) check() (loc *time.Location, err error) {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w Limit: "+format, append([]any{ErrInvalid}, args...)...))
	}
	if l.Name == "" {
		wrong("Name is empty: give each limit a name, limits of the same Name share counts")
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
			wrong("Durable is set and Algorithm in_flight: leave it zero, a stop of all nodes ends all holds")
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
	if l.Scope > Global {
		wrong("Scope %d is unknown: use Regional or Global", l.Scope)
	}
	if l.Partition > FailClosed {
		wrong("Partition %d is unknown: use MajorityShare, FairShare, FailOpen or FailClosed", l.Partition)
	}
	l.Ban.check(l.Algorithm, wrong)
	if l.Pauses && l.Algorithm == InFlight {
		wrong("Pauses is set and Algorithm in_flight: leave it unset, only takes are paused")
	}
	if l.Durable > NotDurable {
		wrong("Durable %d is unknown: use DurableIfLong, Durable or NotDurable", l.Durable)
	}
	return loc, errors.Join(errs...)
}

// durable reports whether the counts of the limit are in snapshots.
func (l *Limit) durable() bool {
	isLong := l.Calendar != NoCalendar || l.Per >= bucket.DurableFrom
	return l.Algorithm != InFlight && (l.Durable == Durable || l.Durable == DurableIfLong && isLong)
}

// numbers returns the part of the limit that package bucket uses.
func (l *Limit) numbers() bucket.Limit {
	numbers := bucket.Limit{Algorithm: l.Algorithm, Rate: l.Rate, Per: l.Per, Burst: l.Burst, Version: l.Version, Durable: l.durable(), Keep: l.Keep}
	if l.Scope == Global && l.Algorithm == SlidingWindow {
		numbers.Start = 1 // a window begins at this instant in all regions; any value other than zero would do
	}
	return numbers
}

// declared returns the part of the limit that is compared with other limits of its Name.
func (l *Limit) declared() limits.Limit {
	return limits.Limit{
		Name: l.Name, Version: l.Version, Algorithm: l.Algorithm, Rate: l.Rate, Per: l.Per, Burst: l.Burst, Keep: l.Keep,
		Scope: uint8(l.Scope), Partition: wire.Policy(l.Partition), Calendar: uint8(l.Calendar), Zone: l.Zone, Varies: l.Varies,
	}
}

// describe returns the text of a limit for the log.
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
	if l.Keep != 0 {
		text += fmt.Sprintf(", keep %d", l.Keep)
	}
	return text + fmt.Sprintf(", %v, %v, %v", l.Algorithm, Scope(l.Scope), PartitionPolicy(l.Partition))
}

// The names of constants in files, the admin API, metrics and logs. Package bucket has the names of an Algorithm.
var (
	scopeNames     = enum.Table[Scope]{What: "scope", Names: []string{"regional", "global"}}
	partitionNames = enum.Table[PartitionPolicy]{What: "partition policy", Names: []string{"majority_share", "fair_share", "fail_open", "fail_closed"}}
	calendarNames  = enum.Table[Calendar]{What: "calendar", Names: []string{"none", "day", "week", "month"}}
)

// String returns the name in rules files, "regional" or "global".
func (s Scope) String() string { return scopeNames.String(s) }

// MarshalText returns the name. It returns an error for an unknown Scope.
func (s Scope) MarshalText() ([]byte, error) { return scopeNames.MarshalText(s) }

// UnmarshalText reads the name. The error names the valid names.
func (s *Scope) UnmarshalText(name []byte) error { return scopeNames.UnmarshalText(s, name) }

// String returns the name in rules files, like "majority_share".
func (p PartitionPolicy) String() string { return partitionNames.String(p) }

// MarshalText returns the name. It returns an error for an unknown PartitionPolicy.
func (p PartitionPolicy) MarshalText() ([]byte, error) { return partitionNames.MarshalText(p) }

// UnmarshalText reads the name. The error names the valid names.
func (p *PartitionPolicy) UnmarshalText(name []byte) error {
	return partitionNames.UnmarshalText(p, name)
}

// String returns the name in rules files, like "month". The name is "none" for NoCalendar.
func (c Calendar) String() string { return calendarNames.String(c) }

// MarshalText returns the name. It returns an error for an unknown Calendar.
func (c Calendar) MarshalText() ([]byte, error) { return calendarNames.MarshalText(c) }

// UnmarshalText reads the name. The error names the valid names.
func (c *Calendar) UnmarshalText(name []byte) error { return calendarNames.UnmarshalText(c, name) }

// Ban bans the keys of a limit that are denied too often. The zero Ban bans none. A banned key is denied
// every check and Peek until the ban ends or Limiter.Reset releases it. A Wait waits for the end of the
// ban. Debits and refunds count as usual.
//
// Denials by the owner of a key or its stand-in count, and the same denials as this node repeats them
// (Pushback). Denials within a share, of shadows, of a Wait, of bans and of pauses do not.
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
