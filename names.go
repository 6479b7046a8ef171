package weir

import "github.com/weir-go/weir/internal/enum"

// The names that files, the admin API, metrics and logs have of what is a constant
// in Go. An Algorithm's are in package bucket.
var (
	scopeNames     = enum.Table[Scope]{What: "scope", Names: []string{"regional", "global"}}
	partitionNames = enum.Table[PartitionPolicy]{What: "partition policy", Names: []string{"majority_share", "fair_share", "fail_open", "fail_closed"}}
	calendarNames  = enum.Table[Calendar]{What: "calendar", Names: []string{"none", "day", "week", "month"}}
	sourceNames    = enum.Table[Source]{What: "source", Names: []string{"none", "owner", "forwarded", "relayed", "stand_in", "budget", "failed_open", "failed_closed", "pushback", "leased"}}
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

// String returns the name that metrics and the admin API have, like "stand_in"; that
// of the zero Source is "none", and that of an unknown one "unknown".
func (s Source) String() string {
	if s <= Leased {
		return sourceNames.String(s)
	}
	return "unknown"
}
