package weir

import (
	"time"

	"github.com/weir-go/weir/bucket"
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
// reachable, or while the roster is below Config.Expect. If the roster is below Expect, the
// members that are absent from the roster count as missing, too. A node that reaches no member
// that could answer is a side of its own. docs/guarantees.md lists the bounds, and
// docs/partitions.md their values for small limits.
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

// Calendar makes the windows of a FixedWindow begin with a day, week or month in Limit.Zone.
type Calendar uint8

const (
	NoCalendar Calendar = iota // windows of Per that start at the first check of a key, or if Global at multiples of Per
	Day                        // from midnight to midnight; 23 to 25 hours
	Week                       // from Monday, as in ISO 8601
	Month                      // from the first day of a month
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
	Rate      int64           // units for each Per, 1 to 10^12; of a SlidingLog at most 100,000
	Per       time.Duration   // 1 ms to 366 days; zero with a Calendar and for InFlight
	Burst     int64           // the capacity of a TokenBucket or LeakyBucket, which refills within 100 years; Rate if zero. Invalid for other algorithms
	Scope     Scope           // Regional if zero. Global is invalid for InFlight
	Partition PartitionPolicy // MajorityShare if zero

	// Keep is the number of units of the Rate, or of the Burst of a TokenBucket, that are kept for
	// critical checks (Limiter.Critical): all other checks spend at most the rest. Keep is less than
	// the Rate or Burst; nothing is kept if zero. If nodes have different values of Keep, each node
	// decides by its own value. Keep must be zero for a LeakyBucket and an InFlight limit.
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
	// never durable, and Durable is invalid for it: a stop of all nodes ends its holds.
	Durable Durability

	// Varies declares that the numbers may differ for the same Name and Version, because they
	// depend on the key, such as on its tier, or change without a new Version. Nodes then do not
	// compare the numbers with those of other limits of the Name (Node.Limiter). The Algorithm must
	// not vary.
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

// check validates the limit, and returns the zone of its Calendar from the time zone database.
func (l *Limit) check() (*time.Location, error) {
	zone, errs := l.declared().Check()
	return zone, invalid("Limit", errs...)
}

// declared returns the limit in the form of package limits. The constants of Scope, Partition, Calendar and
// Durable have the same numbers in both packages: the declarations below do not compile if the numbers of the
// last constants differ.
func (l *Limit) declared() *limits.Limit {
	return &limits.Limit{
		Name: l.Name, Version: l.Version, Algorithm: l.Algorithm, Rate: l.Rate, Per: l.Per, Burst: l.Burst, Keep: l.Keep,
		Scope: uint8(l.Scope), Partition: wire.Policy(l.Partition), Calendar: uint8(l.Calendar), Zone: l.Zone, Varies: l.Varies,
		Ban: limits.Ban{Denials: l.Ban.Denials, Within: l.Ban.Within, For: wire.Ban(l.Ban.For)}, Pauses: l.Pauses, Durable: uint8(l.Durable),
	}
}

var (
	_ = [1]struct{}{}[Global-limits.Global]
	_ = [1]struct{}{}[FailClosed-PartitionPolicy(wire.FailClosed)]
	_ = [1]struct{}{}[Month-Calendar(limits.Month)]
	_ = [1]struct{}{}[NotDurable-limits.NotDurable]
)

// String returns the name in rules files, "regional" or "global".
func (s Scope) String() string { return limits.Scopes.String(uint8(s)) }

// MarshalText returns the name. It returns an error for an unknown Scope.
func (s Scope) MarshalText() ([]byte, error) { return limits.Scopes.MarshalText(uint8(s)) }

// UnmarshalText reads the name. The error names the valid names.
func (s *Scope) UnmarshalText(name []byte) error {
	return limits.Scopes.UnmarshalText((*uint8)(s), name)
}

// String returns the name in rules files, like "majority_share".
func (p PartitionPolicy) String() string { return limits.Partitions.String(uint8(p)) }

// MarshalText returns the name. It returns an error for an unknown PartitionPolicy.
func (p PartitionPolicy) MarshalText() ([]byte, error) {
	return limits.Partitions.MarshalText(uint8(p))
}

// UnmarshalText reads the name. The error names the valid names.
func (p *PartitionPolicy) UnmarshalText(name []byte) error {
	return limits.Partitions.UnmarshalText((*uint8)(p), name)
}

// String returns the name in rules files, like "month". The name is "none" for NoCalendar.
func (c Calendar) String() string { return limits.Calendars.String(uint8(c)) }

// MarshalText returns the name. It returns an error for an unknown Calendar.
func (c Calendar) MarshalText() ([]byte, error) { return limits.Calendars.MarshalText(uint8(c)) }

// UnmarshalText reads the name. The error names the valid names.
func (c *Calendar) UnmarshalText(name []byte) error {
	return limits.Calendars.UnmarshalText((*uint8)(c), name)
}

// Ban bans keys that a limit denies too often. The zero Ban bans none. A banned key is denied
// every check and Peek until the ban ends or Limiter.Reset releases it. A Wait waits for the end of the
// ban. Debits and refunds count as usual.
//
// Denials by the owner of a key or its stand-in count, and so do repetitions of such a denial by a node
// that has cached it (Pushback). Denials because of a share, a ban or a pause do not count, and neither do
// denials of shadows, of a Wait and of a Debit.
type Ban struct {
	Denials int64         // denials within Within that ban a key, 1 to 10,000
	Within  time.Duration // 1 ms to 366 days
	For     BanLengths
}

// BanLengths are the lengths of the first ban of a key and of the next bans, in whole seconds from 1 s to
// 366 days. The last length applies to all further bans, and only zeros may follow it. A ban counts as an
// earlier ban of the key for 24 hours from its begin, or for twice the longest length if that is longer, but
// for at most 366 days.
type BanLengths [wire.BanSteps]time.Duration
