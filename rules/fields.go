package rules

import (
	"cmp"
	"time"

	"github.com/weir-go/weir/internal/strictyaml"
)

// The fields of a file, by their place. The Schema has the same fields.
var (
	fileFields    = []string{"$schema", "version", "enabled", "ignore_case", "ipv6_prefix", "tiers", "default_tier", "times", "exempt", "deny", "denied", "rules"}
	tierFields    = []string{"multiply"}
	exemptFields  = []string{"ip", "user", "api_key"}
	denyFields    = []string{"ip", "user", "api_key", "key", "until", "reason"}
	ruleFields    = []string{"name", "enabled", "match", "key", "missing_key", "multiply", "limit", "limits", "critical", "cost", "scope", "partition", "no_leases", "durable", "shadow", "enforce", "soft", "ban", "queue", "count", "refund_on", "reserve", "settle", "warn", "denied", "adapt", "raise"}
	matchFields   = []string{"method", "host", "path", "header", "tier", "ip", "user", "api_key", "not"}
	notFields     = []string{"method", "host", "path", "header", "tier", "ip", "user", "api_key"}
	limitFields   = []string{"name", "algorithm", "rate", "per", "burst", "keep", "calendar", "zone", "warn", "tiers", "times", "values"}
	numberFields  = []string{"rate", "per", "burst", "keep"}
	costFields    = []string{"by", "from", "default", "unit"}
	reserveFields = []string{"from", "default", "unit"}
	routeFields   = []string{"method", "path", "units"}
	exactFields   = []string{"exact"}
	outcomeFields = []string{"status"}
	settleFields  = []string{"header", "trailer", "json", "sse", "unit", "on_error"}
	softFields    = []string{"over", "for"}
	adaptFields   = []string{"latency", "slow", "errors", "min", "max"}
	raiseFields   = []string{"denied", "for", "most"}
	banFields     = []string{"denials", "within", "for"}

	windowFields     = []string{"name", "days", "from", "to", "zone"}
	timeFields       = append([]string{"multiply", "tiers"}, numberFields...)
	deniedTextFields = []string{"title", "detail", "upgrade_url", "html", "headers"}
	deniedFields     = append([]string{"tiers"}, deniedTextFields...)
)

// The bounds of the numbers in a file.
const (
	maxTiers     = 64
	maxWindows   = 64
	maxLimits    = 16 // in a rule
	maxNot       = 64 // entries in each of not, critical and by of a rule, and paths in such an entry
	maxNameBytes = 64
	maxValues    = 10_000 // in all rules
	maxRate      = 1_000_000_000_000
	minPer       = time.Millisecond
	maxPer       = 366 * 24 * time.Hour
	maxQueue     = time.Minute

	maxDeniedText    = 1 << 10 // bytes
	maxDeniedHTML    = 16 << 10
	maxDeniedHeaders = 16
)

func oneOf(v strictyaml.Value, what string, known []string) string {
	return cmp.Or(v.OneOf(what, known), known[0])
}
