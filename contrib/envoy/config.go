package envoylimit

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Config is the descriptors of one domain or more, as Parse and Load read them. It
// does not change, and may be used by many Services. The zero Config has no domains
// and limits nothing.
type Config struct {
	domains map[string]*domain
}

// Domains returns the names of the domains, sorted.
func (c *Config) Domains() []string {
	return slices.Sorted(maps.Keys(c.domains))
}

// domain is a tree of descriptors. Requests of one domain never meet those of another.
type domain struct {
	name     string
	top      *level
	parts    []part      // the descriptors of top, in their order
	limits   []*limit    // all of the tree
	replaces []replacing // what these name

	sum          [sha256.Size]byte // of its text
	file         string            // where its name stands, for the errors of others
	line, column int
}

// level is the descriptors that stand beside each other. At most one of them matches
// an entry: the one with its value, else the first in the file whose pattern the value
// fits, else the one without a value.
type level struct {
	exact    map[entry]*descriptor
	patterns map[string][]*descriptor // of each key, in the order of the file
	any      map[string]*descriptor
}

type entry struct{ key, value string }

// descriptor is one of a level.
type descriptor struct {
	key, value string
	parts      []string // of a pattern: its value without each *; nil if it is none
	shared     bool     // all values that fit the pattern have one count
	valued     bool     // the value of a request is part of what a decision is told under
	limit      *limit
	below      *level
}

// limit is what a rate_limit says, and how it is applied.
type limit struct {
	path     string // domain and descriptors, as messaging.message_type_marketing.to_number
	name     string // what others name when they replace it; empty if they cannot
	replaces []string
	current  *rls.RateLimitResponse_RateLimit // what answers show; shared by all, and never changed. Nil if unlimited

	shadow   bool // decided and told, never enforced
	quota    bool // denies once all quotas of a request are used up
	debit    bool // spends what is asked for though there is no room for it
	detailed bool // decisions are told under their descriptor's values

	metadata *structpb.Struct // of answers of a request that the limit lets pass; never changed
}

func newLevel() *level {
	return &level{make(map[entry]*descriptor), make(map[string][]*descriptor), make(map[string]*descriptor)}
}

// add adds a descriptor, of which there is none of the same key and value.
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

// find appends the descriptors that match the entries, one for each. They are as many
// as the entries only if the last has been matched, too: a limit applies to
// descriptors of its own depth.
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

// label is a descriptor as paths have it.
func (d *descriptor) label() string {
	if d.value != "" {
		return d.key + "_" + d.value
	}
	return d.key
}

// units are the names of the units of a file, and what they are in a response and in
// time. A month is 30 days, and a year 365.
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

// unitNames are the names of all units, in their order.
func unitNames() (names []string) {
	for _, u := range units {
		names = append(names, u.name)
	}
	return names
}

// period is the time over which a limit counts, and what it is called; zero if there
// is no such unit.
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

const maxPer = 366 * day // of a weir.Limit

// same reports whether two Configs were read from the same texts.
func (c *Config) same(as *Config) bool {
	return maps.EqualFunc(c.domains, as.domains, func(a, b *domain) bool { return a.sum == b.sum })
}

// count is how many limits there are.
func (c *Config) count() (n int) {
	for _, d := range c.domains {
		n += len(d.limits)
	}
	return n
}
