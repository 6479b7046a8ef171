package envoylimit

import (
	"fmt"
	"maps"
	"slices"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Config contains the descriptors of domains, as read by Parse and Load. A Config does
// not change, and Services may share a Config. The zero Config has no domains and no
// limits.
type Config struct {
	domains map[string]*domain
}

// Domains returns the names of the domains, sorted.
func (c *Config) Domains() []string {
	return slices.Sorted(maps.Keys(c.domains))
}

// domain is a tree of descriptors. A request is matched against the descriptors of its
// own domain only.
type domain struct {
	name     string
	top      *level
	parts    []part      // the descriptors in top, in the order of the file
	limits   []*limit    // the limits of all descriptors, at every level
	replaces []replacing // the names in all replaces fields

	file         string // position of the domain name, for errors about other domains
	line, column int
}

// level contains the descriptors of a nesting level. An entry matches the first of these that
// exists: the descriptor with the value of the entry, a descriptor whose pattern fits the value
// (the first such in the file), or the descriptor without a value.
type level struct {
	exact    map[entry]*descriptor
	patterns map[string][]*descriptor // by the key of the descriptors; in the order of the file
	any      map[string]*descriptor   // by the key of the descriptors, which have no value
}

type entry struct{ key, value string }

// descriptor is an element of a level.
type descriptor struct {
	key, value string
	parts      []string // for a pattern, the value split at each *; nil if the value is not a pattern
	shared     bool     // all values that fit the pattern share a count
	valued     bool     // Decided.Path contains the value of the request
	limit      *limit
	below      *level
}

// limit is a rate_limit of the configuration and its modes.
type limit struct {
	path     string // domain and descriptors, such as messaging.message_type_marketing.to_number
	name     string // the name in the replaces field of other limits; empty if no limit can replace this limit
	replaces []string
	current  *rls.RateLimitResponse_RateLimit // nil if unlimited. Never modified, because responses share it

	shadow   bool // decided and reported, never enforced
	quota    bool // denies only if all quotas of a request are used up
	debit    bool // spends the requested units even if there is no room for them
	detailed bool // Decided.Path contains the values of the request

	metadata *structpb.Struct // part of responses to requests that the limit allows; never modified
}

func newLevel() *level {
	return &level{make(map[entry]*descriptor), make(map[string][]*descriptor), make(map[string]*descriptor)}
}

// add adds a descriptor. No descriptor of l may have the same key and value.
func (l *level) add(d *descriptor) {
	switch {
	case d.parts != nil:
		l.patterns[d.key] = append(l.patterns[d.key], d)
	case d.value == "":
		l.any[d.key] = d
	default:
		l.exact[entry{d.key, d.value}] = d
	}
}

func (l *level) match(w *work, e *ratelimit.RateLimitDescriptor_Entry) (*descriptor, error) {
	if d := l.exact[entry{e.GetKey(), e.GetValue()}]; d != nil {
		return d, nil
	}
	for _, d := range l.patterns[e.GetKey()] {
		if fits, err := d.fits(w, e.GetValue()); fits || err != nil {
			return d, err
		}
	}
	return l.any[e.GetKey()], nil
}

// find appends to the slice way the descriptor that matches each entry, and stops at the first
// entry without a match. A limit applies only to requests of its own depth, so it applies only
// if the result has as many descriptors as entries.
func (d *domain) find(w *work, entries []*ratelimit.RateLimitDescriptor_Entry, way []*descriptor) ([]*descriptor, error) {
	for at := d.top; at != nil && len(way) < len(entries); {
		next, err := at.match(w, entries[len(way)])
		if next == nil || err != nil {
			return way, err
		}
		way, at = append(way, next), next.below
	}
	return way, nil
}

// label returns the part of a path that stands for the descriptor.
func (d *descriptor) label() string {
	if d.value != "" {
		return d.key + "_" + d.value
	}
	return d.key
}

// units lists the units by their names in a file, with their values in a response and
// their durations. A month is 30 days, and a year 365.
var units = []struct {
	name string
	unit rls.RateLimitResponse_RateLimit_Unit
	per  time.Duration
}{
	{"second", rls.RateLimitResponse_RateLimit_SECOND, time.Second},
	{"minute", rls.RateLimitResponse_RateLimit_MINUTE, time.Minute},
	{"hour", rls.RateLimitResponse_RateLimit_HOUR, time.Hour},
	{"day", rls.RateLimitResponse_RateLimit_DAY, day},
	{"week", rls.RateLimitResponse_RateLimit_WEEK, 7 * day},
	{"month", rls.RateLimitResponse_RateLimit_MONTH, 30 * day},
	{"year", rls.RateLimitResponse_RateLimit_YEAR, 365 * day},
}

const day = 24 * time.Hour

func unitNames() (names []string) {
	for _, u := range units {
		names = append(names, u.name)
	}
	return names
}

// period returns the length of the windows of a limit, and the name of that length. The length
// is zero if the unit is unknown, or if the length would exceed maxPer.
func period(r *rls.RateLimitResponse_RateLimit) (per time.Duration, name string) {
	for _, u := range units {
		if u.unit != r.GetUnit() {
			continue
		}
		multiplier := r.GetUnitMultiplier().GetValue()
		if multiplier <= 1 {
			return u.per, u.name
		}
		if time.Duration(multiplier) > maxPer/u.per {
			return 0, ""
		}
		return u.per * time.Duration(multiplier), fmt.Sprintf("%d %ss", multiplier, u.name)
	}
	return 0, ""
}

const maxPer = 366 * day // the longest period of a weir.Limit

// count returns the number of limits.
func (c *Config) count() (n int) {
	for _, d := range c.domains {
		n += len(d.limits)
	}
	return n
}
