package rules

import (
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/strictyaml"
)

// The fields that a file may have, by where they are. The Schema has the same.
var (
	fileFields   = []string{"$schema", "version", "enabled", "ipv6_prefix", "tiers", "default_tier", "exempt", "rules"}
	tierFields   = []string{"multiply"}
	exemptFields = []string{"ip", "user", "api_key"}
	ruleFields   = []string{"name", "match", "key", "missing_key", "limit", "limits", "cost", "scope", "partition", "shadow", "soft", "queue"}
	matchFields  = []string{"method", "host", "path", "header", "tier"}
	limitFields  = []string{"name", "algorithm", "rate", "per", "burst", "calendar", "zone", "tiers"}
	numberFields = []string{"rate", "per", "burst"}
	costFields   = []string{"from", "default", "unit"}
	softFields   = []string{"over", "for"}
)

// The names that a file may use, in the order of what they stand for.
var (
	algorithmNames = []string{"sliding_window", "sliding_log", "fixed_window", "token_bucket", "leaky_bucket"}
	algorithms     = []weir.Algorithm{weir.SlidingWindow, weir.SlidingLog, weir.FixedWindow, weir.TokenBucket, weir.LeakyBucket}
	calendarNames  = []string{"day", "week", "month"}
	calendars      = []weir.Calendar{weir.Day, weir.Week, weir.Month}
	scopeNames     = []string{"regional", "global"}
	scopes         = []weir.Scope{weir.Regional, weir.Global}
	partitionNames = []string{"majority_share", "fair_share", "fail_open", "fail_closed"}
	partitions     = []weir.PartitionPolicy{weir.MajorityShare, weir.FairShare, weir.FailOpen, weir.FailClosed}
)

// The bounds of a file's numbers.
const (
	maxTiers     = 64
	maxLimits    = 16 // of a rule
	maxNameBytes = 64
	maxRate      = 1_000_000_000_000
	minPer       = time.Millisecond
	maxPer       = 366 * 24 * time.Hour
	maxQueue     = time.Minute
)

func oneOf(v strictyaml.Value, what string, known []string) string {
	if !v.Present() {
		return known[0]
	}
	if name := v.OneOf(what, known); name != "" {
		return name
	}
	return known[0]
}

// named reads a name of one of the values, the first if there is none.
func named[T any](v strictyaml.Value, what string, names []string, values []T) T {
	return values[slices.Index(names, oneOf(v, what, names))]
}

func nameOf[T comparable](value T, names []string, values []T) string {
	if i := slices.Index(values, value); i >= 0 {
		return names[i]
	}
	return fmt.Sprint(value)
}
