package limits

import (
	"cmp"
	"fmt"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/internal/wire"
)

// Limit is a weir.Limit. Its Scope, Calendar and Durable are the numbers of the types in package weir.
type Limit struct {
	Name      string
	Version   uint64
	Algorithm bucket.Algorithm
	Rate      int64
	Per       time.Duration
	Burst     int64
	Keep      int64
	Scope     uint8
	Partition wire.Policy
	Calendar  uint8 // 0 for none
	Zone      string
	Varies    bool // nodes may have other numbers: only the Algorithm is compared, on this node. Members do not send the limit

	// The fields below are neither sent nor compared.
	Ban     Ban
	Pauses  bool
	Durable uint8
}

// The numbers of Scope and Durable in a Limit.
const (
	Global                             = 1
	DurableIfLong, Durable, NotDurable = 0, 1, 2
)

// The names of numbers in a Limit.
var (
	Scopes     = enum.Table[uint8]{What: "scope", Names: []string{"regional", "global"}}
	Partitions = enum.Table[uint8]{What: "partition policy", Names: []string{"majority_share", "fair_share", "fail_open", "fail_closed"}}
	Calendars  = enum.Table[uint8]{What: "calendar", Names: []string{"none", "day", "week", "month"}}
)

// Check returns an error for each problem of the limit, and the zone of its Calendar, which Check reads from
// the time zone database. The text of an error begins with the name of the field.
func (l *Limit) Check() (zone *time.Location, errs []error) {
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if l.Name == "" {
		wrong("Name is empty: give each limit a name, limits of the same Name share counts")
	} else if len(l.Name) > wire.MaxNameBytes {
		wrong("Name has %d bytes: use at most %d", len(l.Name), wire.MaxNameBytes)
	}
	numbers := l.Numbers()
	if l.Algorithm == bucket.InFlight {
		l.checkInFlight(wrong)
		numbers.Per = 0
	}
	if l.Calendar != 0 {
		numbers.Per = 24 * time.Hour
	}
	if err := numbers.Validate(); err != nil {
		wrong("%w", err)
	}
	zone = l.checkCalendar(wrong)
	if l.Scope > Global {
		wrong("Scope %d is unknown: use Regional or Global", l.Scope)
	}
	if l.Partition > wire.FailClosed {
		wrong("Partition %d is unknown: use MajorityShare, FairShare, FailOpen or FailClosed", l.Partition)
	}
	l.Ban.check(wrong)
	if l.Durable > NotDurable {
		wrong("Durable %d is unknown: use DurableIfLong, Durable or NotDurable", l.Durable)
	}
	return zone, errs
}

// checkInFlight reports the fields that an InFlight limit does not have.
func (l *Limit) checkInFlight(wrong func(format string, args ...any)) {
	for _, field := range []struct {
		set     bool
		problem string
	}{
		{l.Per != 0, fmt.Sprintf("Per is %v and Algorithm in_flight: leave Per zero, units come back as they are released", l.Per)},
		{l.Durable == Durable, "Durable is set and Algorithm in_flight: leave it zero, a stop of all nodes ends all holds"},
		{l.Scope == Global, "Scope is global and Algorithm in_flight: holds are counted in one region; use regional"},
		{l.Ban != (Ban{}), "Ban is set and Algorithm in_flight: leave it zero, only denials of a rate ban a key"},
		{l.Pauses, "Pauses is set and Algorithm in_flight: leave it unset, only takes are paused"},
	} {
		if field.set {
			wrong("%s", field.problem)
		}
	}
}

// checkCalendar reports problems of the Calendar, and returns its zone.
func (l *Limit) checkCalendar(wrong func(format string, args ...any)) (zone *time.Location) {
	switch {
	case l.Calendar > uint8(Month):
		wrong("Calendar %d is unknown: use NoCalendar, Day, Week or Month", l.Calendar)
	case l.Calendar == 0 && l.Zone != "":
		wrong("Zone is %q and there is no Calendar: set Calendar to Day, Week or Month, or leave Zone empty", l.Zone)
	case l.Calendar != 0:
		if l.Algorithm != bucket.FixedWindow {
			wrong("Calendar is %s and Algorithm %v: only fixed_window begins with the calendar", Calendars.String(l.Calendar), l.Algorithm)
		}
		if l.Per != 0 {
			wrong("Per is %v and Calendar %s: leave Per zero, because the calendar determines the length of a window", l.Per, Calendars.String(l.Calendar))
		}
		var err error
		if zone, err = LoadZone(l.Zone); err != nil {
			wrong("Zone is %q: %w", l.Zone, err)
		}
	}
	return zone
}

// Numbers returns the part of the limit that package bucket uses.
func (l *Limit) Numbers() bucket.Limit {
	numbers := bucket.Limit{Algorithm: l.Algorithm, Rate: l.Rate, Per: l.Per, Burst: l.Burst, Version: l.Version, Durable: l.isDurable(), Keep: l.Keep}
	if l.Scope == Global && l.Algorithm == bucket.SlidingWindow {
		numbers.Start = 1 // a window begins at this instant in all regions; any value other than zero would do
	}
	return numbers
}

// isDurable reports whether the counts of the limit are in snapshots.
func (l *Limit) isDurable() bool {
	isLong := l.Calendar != 0 || l.Per >= bucket.DurableFrom
	return l.Algorithm != bucket.InFlight && (l.Durable == Durable || l.Durable == DurableIfLong && isLong)
}

// conflicts reports whether two limits with the same Name have the same Version and different numbers.
// A limit that Varies has no conflicts.
func (l *Limit) conflicts(o *Limit) bool {
	return l.Version == o.Version && !l.Varies && !o.Varies && l.spelled() != o.spelled()
}

// spelled returns the fields that members send, with explicit defaults, so that the results of two limits are
// equal if the limits decide alike.
func (l *Limit) spelled() Limit {
	s := *l
	s.Ban, s.Pauses, s.Durable = Ban{}, false, DurableIfLong
	if s.Algorithm == bucket.TokenBucket || s.Algorithm == bucket.LeakyBucket {
		s.Burst = cmp.Or(s.Burst, s.Rate)
	}
	if s.Calendar != 0 {
		s.Zone = cmp.Or(s.Zone, "UTC")
	}
	return s
}

// describe returns the numbers of the limit, with explicit defaults, for the log.
func (l *Limit) describe() string {
	s := l.spelled()
	text := fmt.Sprintf("%d per %s", s.Rate, enum.Duration(s.Per))
	if s.Algorithm == bucket.InFlight {
		text = fmt.Sprintf("%d at once", s.Rate)
	}
	if s.Calendar != 0 {
		text = fmt.Sprintf("%d per calendar %s of %s", s.Rate, Calendars.String(s.Calendar), s.Zone)
	}
	if s.Burst != 0 {
		text += fmt.Sprintf(", burst %d", s.Burst)
	}
	if s.Keep != 0 {
		text += fmt.Sprintf(", keep %d", s.Keep)
	}
	return text + fmt.Sprintf(", %v, %s, %s", s.Algorithm, Scopes.String(s.Scope), Partitions.String(uint8(s.Partition)))
}

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
	strikes = bucket.Limit{Algorithm: bucket.SlidingLog, Rate: b.Denials, Per: b.Within, Version: version}
	strikes.Durable = strikes.DurableByPer()
	return strikes
}
