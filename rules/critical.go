package rules

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/strictyaml"
)

// IsCritical reports whether a request that meets a rule may spend the kept units of its limits.
func (s *Set) IsCritical(rule *Rule, r *Request) bool {
	if r.Critical || len(rule.Critical) == 0 {
		return r.Critical
	}
	m := s.begin(r, nil)
	return findExcluding(rule.Critical, &m) != nil
}

// LimiterFor returns the Limiter for requests that are critical, or for all other requests, and its item
// of the field RateLimit-Policy.
func (c *Count) LimiterFor(critical bool) (l *weir.Limiter, policy string) {
	if critical {
		return c.Limiter.Critical(), c.criticalPolicy
	}
	return c.Limiter, c.Policy
}

// keep is the kept part of a limit: a number of units, or a part of the Burst or, without a Burst, of the Rate.
type keep struct {
	units int64
	part  float64
}

// applyTo returns l with its Keep, which leaves at least a unit of l.
func (k keep) applyTo(l weir.Limit) weir.Limit {
	capacity := cmp.Or(l.Burst, l.Rate)
	l.Keep = max(0, min(k.units+int64(math.Ceil(k.part*float64(capacity))), capacity-1))
	return l
}

// keep reads the kept part of a limit l.
func (p *parser) keep(v strictyaml.Value, l *weir.Limit) (k keep) {
	if !v.Present() {
		return k
	}
	if strings.HasSuffix(v.Literal(), "%") {
		if k.part = v.Unquoted().Percent(); k.part == 1 {
			v.Errorf("keep is 100%%: use less, so that other requests get a unit")
		}
	} else {
		k.units = v.Int(1, maxRate)
	}
	if l.Algorithm == weir.LeakyBucket || l.Algorithm == weir.InFlight {
		v.Errorf("keep with %v: its callers wait in one queue; leave keep out, and give other requests a rule with a lower limit", l.Algorithm)
		return keep{}
	}
	if most := cmp.Or(l.Burst, l.Rate); most > 0 && k.units >= most {
		v.Errorf("keep is %d of %d: use less, so that other requests get a unit", k.units, most)
		return keep{}
	}
	return k
}

// criticals reads the critical requests of a rule.
func (p *parser) criticals(r *Rule, v strictyaml.Value) {
	if !v.Present() {
		return
	}
	items := v.OneOrMore()
	if len(items) == 0 || len(items) > maxNot {
		v.Errorf("critical has %d entries: use 1 to %d", len(items), maxNot)
	}
	for _, item := range items {
		if !item.IsMap() {
			item.Errorf("critical has an entry that is not a map: select requests, like {path: /checkout} or {user: alice}")
			continue
		}
		c, _ := p.conditions(item, item.Map(notFields...), "critical", "critical is empty, which would select every request: add a condition")
		r.Critical = append(r.Critical, c)
	}
	refuse(v, conflict{!slices.ContainsFunc(r.Limits, func(l Limit) bool { return l.keep != keep{} }), "critical in a rule whose limits keep nothing: add keep to a limit, like keep: 20%"})
}
