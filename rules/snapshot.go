package rules

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/adapt"
	"github.com/weir-go/weir/internal/ratelimit"
)

// Snapshot is a version of a Book: the Set of the file with the Limiters of a node, the current
// overrides and the modes that the current switches give the rules. A Snapshot never changes, so that a
// request that is decided by a Snapshot sees a single version. Code that calls Book.Current twice for a request
// can see two versions. Count and Limiter allocate only for the first key with certain numbers of the field values.
type Snapshot struct {
	*Set
	serial    uint64
	now       func() time.Time
	blocked   *[blockKinds]atomic.Uint64 // counters of the Book
	counts    []*counts                  // indexed by Limit.Index
	open      uint64                     // time windows that are open, a bit for each
	overrides []map[[16]byte]*grant      // indexed by Limit.Index; nil if no key of the limit has an override
	blocks    *blocks                    // nil if operators have set no block
	switches  map[string]*Switch         // keyed by the name of the rule, or AllRules
	denials   map[ruleTier]*tierDenials
	warnings  map[string]*atomic.Uint64 // keyed by the name of the rule
	adapted   map[string]Adaptation     // keyed by the name of the rule
	hot       []*Suggestion
	meters    map[string]*adapt.Meter // meters of the rules with Adapt, keyed by the name of the rule
}

// Count has the Limiters of a key under a limit.
type Count struct {
	Limiter *weir.Limiter
	Soft    *weir.Limiter // Limiter of the overrun; nil if the rule allows none
	Policy  string        // the limit as an item of the field RateLimit-Policy

	criticalPolicy string // the Policy for critical requests
	full           int64  // Capacity without the factor of the rule; 0 for an override
}

// newSnapshot makes the Limiters of a Set.
func newSnapshot(node *weir.Node, set *Set) (*Snapshot, error) {
	s := &Snapshot{Set: set, counts: make([]*counts, len(set.limits))}
	for i, l := range set.limits {
		var err error
		if s.counts[i], err = newCounts(node, l, 0); err != nil {
			return nil, fmt.Errorf("rules: limit %q: %w", l.Name, err)
		}
	}
	return s, nil
}

// counts has the Limiters of the keys of a limit.
type counts struct {
	node   *weir.Node
	limit  *Limit   // the limit with the numbers in force
	open   uint64   // the open time windows for which limit has the numbers, a bit for each
	first  []Count  // indexed by variant, without the variants of values
	values sync.Map // a *Count for each variant of a value, keyed by the result of Limit.full; made when a key first needs it, because there may be many variants
}

// newCounts makes the Limiters of a limit, except for the variants of values.
func newCounts(node *weir.Node, l *Limit, open uint64) (_ *counts, err error) {
	c := &counts{node: node, limit: l, open: open, first: make([]Count, 1+len(l.tiers))}
	for v := range c.first {
		if c.first[v], err = c.newCount(v); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *counts) newCount(variant int) (Count, error) {
	made, err := newCount(c.node, c.limit, c.limit.numbers(variant))
	made.full = Capacity(*c.limit.full(variant))
	return made, err
}

// find returns the Limiters of a variant.
func (c *counts) find(variant int) *Count {
	if variant < len(c.first) {
		return &c.first[variant]
	}
	full := c.limit.full(variant)
	if made, known := c.values.Load(full); known {
		return made.(*Count)
	}
	made, err := c.newCount(variant)
	if err != nil { // the node is closed
		return &c.first[0]
	}
	stored, _ := c.values.LoadOrStore(full, &made)
	return stored.(*Count)
}

// setCounts makes new Limiters for each limit whose numbers have changed, because the factor has changed or a time
// window has opened or closed. Counts in use continue with the new numbers.
func (s *Snapshot) setCounts(node *weir.Node) {
	s.counts = slices.Clone(s.counts) // s shares them with earlier Snapshots
	for i, l := range s.limits {
		was := s.counts[i]
		if cmp.Or(was.limit.factor, 100) == s.factorOf(s.ruleOf[i]) && (was.open == s.open || l.times == nil) {
			continue
		}
		now, err := newCounts(node, s.InForce(l), s.open)
		if err != nil { // the node is closed
			return
		}
		s.counts[i] = now
	}
}

// newCount makes the Limiters for the given numbers. The numbers may vary at a version: by
// tier and override, and when a file is loaded again.
func newCount(node *weir.Node, l *Limit, numbers weir.Limit) (c Count, err error) {
	numbers.Varies = true
	if c.Limiter, err = node.Limiter(numbers); err != nil {
		return Count{}, err
	}
	if soft, ok := l.soft.overrun(numbers); ok {
		soft.Varies = true
		c.Soft, err = node.Limiter(soft)
	}
	bytes := l.set.ruleOf[l.Index].CountsBytes()
	c.Policy = string(ratelimit.AppendPolicy(nil, numbers, bytes))
	if c.criticalPolicy = c.Policy; numbers.Keep > 0 {
		c.criticalPolicy = string(ratelimit.AppendPolicy(nil, c.Limiter.Critical().Limit(), bytes))
	}
	return c, err
}

// Count returns the Limiters of a key under a limit of the Set of s. If the key has an override, the
// Limiters have its numbers. Otherwise they have the numbers that values of the file give the key, or, if
// there are none, the numbers of the tier; both depend on the time windows that are open. The Count is
// shared, and must not be changed.
func (s *Snapshot) Count(l *Limit, tier, key string) *Count {
	c := s.counts[l.Index].find(l.variant(tier, key))
	if of := s.overrides[l.Index]; of != nil {
		if o := of[c.Limiter.ID(key)]; o != nil {
			return &o.count
		}
	}
	return c
}

// ModeFor returns the mode of a rule for a key: Enforce, Shadow or Off. The ID of the key under the
// first limit of the rule selects the keys for which a rule is enforced in part.
func (s *Snapshot) ModeFor(r *Rule, key string) Mode {
	m := s.modes[r.Index]
	if m.isPart() {
		m = m.forID(s.id(&r.Limits[0], key))
	}
	return m
}

// Limiter returns the Limiter of Count.
func (s *Snapshot) Limiter(l *Limit, tier, key string) *weir.Limiter {
	return s.Count(l, tier, key).Limiter
}

// id returns the ID of a key under a limit.
func (s *Snapshot) id(l *Limit, key string) [16]byte {
	return s.counts[l.Index].first[0].Limiter.ID(key)
}

// Serial returns a number that increases by 1 with each Snapshot of a Book: with a new text, with a change of
// the published values, such as an override, a Block, a switch or a factor, and when a time window opens or
// closes.
func (s *Snapshot) Serial() uint64 { return s.serial }

// override returns the override of a key under a limit, or nil.
func (s *Snapshot) override(l *Limit, id [16]byte) *grant { return s.overrides[l.Index][id] }
