package rules

import (
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/internal/strictyaml"
)

// Adapt makes the numbers of the limits of a rule follow the responses to its requests. All nodes multiply
// the numbers by one factor. The factor falls while the part of the slow requests is above Slow, the part of the
// failed requests above Errors, or a queue grows that will make requests slow.
type Adapt struct {
	Latency  time.Duration // a request is slow if its response begins later than this after the request arrived
	Slow     float64       // part of the requests that may be slow
	Errors   float64       // part of the requests that may fail, with 5xx except 501, or a panic
	Min, Max float64       // bounds of the factor, 0.01 to 1
}

// String returns the adapt as text, like "20% to 100%: at most 5% slower than 200ms, and 5% failed".
func (a *Adapt) String() string {
	return fmt.Sprintf("%s to %s: at most %s slower than %s, and %s failed", percent(a.Min), percent(a.Max), percent(a.Slow), enum.Duration(a.Latency), percent(a.Errors))
}

func percent(part float64) string { return fmt.Sprintf("%.4g%%", part*100) }

const (
	minAdaptLatency = time.Millisecond
	maxAdaptLatency = 5 * time.Minute
	maxAdaptPer     = time.Minute // maximum window of a limit: a longer window follows the factor too late
	minAdaptPart    = 0.001
	minFactor       = 0.01
)

// adapt reads the adapt of a rule.
func (p *parser) adapt(r *Rule, v strictyaml.Value) {
	if !v.Present() {
		return
	}
	m := v.Map(adaptFields...)
	a := &Adapt{
		Latency: duration(m.Get("latency").Required(), minAdaptLatency, maxAdaptLatency),
		Slow:    partOr(m, "slow", minAdaptPart, 0.05),
		Errors:  partOr(m, "errors", minAdaptPart, 0.05),
		Min:     partOr(m, "min", minFactor, 0.2),
		Max:     partOr(m, "max", minFactor, 1),
	}
	if a.Max > 0 && a.Min >= a.Max {
		v.Errorf("min is %s and max is %s: use a min below max", percent(a.Min), percent(a.Max))
	}
	r.Adapt = a
	p.set.adaptive[r.Name] = r
	p.checkAdapt(r, v)
}

// checkAdapt reports an error for an adapt in a rule whose limits must not follow the responses.
func (p *parser) checkAdapt(r *Rule, v strictyaml.Value) {
	for i := range r.Limits {
		l, longest := &r.Limits[i], time.Duration(0) // the longest window
		for variant := range l.variants() {
			if n := l.numbers(variant); !isBucket(n.Algorithm) {
				longest = max(longest, n.Per)
			}
		}
		if refuse(v,
			conflict{l.base.Calendar != weir.NoCalendar, "adapt in a rule with a calendar limit: put adapt and the calendar limit into two rules, because a quota does not follow the load of a server"},
			conflict{l.base.Scope != weir.Regional, fmt.Sprintf("adapt in a rule with scope: %[1]v: put adapt and the %[1]v limit into two rules, because each region has its own factor, and the regions would share different numbers", l.base.Scope)},
			conflict{l.base.Ban != weir.Ban{}, "adapt in a rule with ban: remove adapt or ban, because a slow server would get its clients banned"},
			conflict{longest > maxAdaptPer, fmt.Sprintf("adapt in a rule with a limit per %s: use a window of at most %s or a bucket, because a longer window follows the load too late", enum.Duration(longest), enum.Duration(maxAdaptPer))}) {
			return
		}
	}
}

// partOr reads a percentage of at least low, or returns the default if the field is missing.
func partOr(m strictyaml.Map, field string, low, byDefault float64) float64 {
	v := m.Get(field)
	if !v.Present() {
		return byDefault
	}
	part := v.Unquoted().Percent()
	if v.IsText() && part < low && (part > 0 || isZero(v.Text())) {
		v.Errorf("%s is %s: use at least %s", field, v.Text(), percent(low))
	}
	return part
}

// Scaled returns l with each Rate, Burst and Keep multiplied by a factor in percent, also those of the tiers
// and of the values.
func (l *Limit) Scaled(factor int64) *Limit {
	if factor == 100 {
		return l
	}
	now := *l
	now.factor = factor
	return &now
}

// scale multiplies the Rate, Burst and Keep of a limit by a factor in percent. The Rate, and a Burst if there
// is one, are at least 1. The kept part leaves at least a unit for other checks.
func scale(l weir.Limit, factor int64) weir.Limit {
	l.Rate, l.Factor = max(1, l.Rate*factor/100), factor
	if l.Burst > 0 {
		l.Burst = max(1, l.Burst*factor/100)
	}
	return keep{units: (l.Keep*factor + 99) / 100}.applyTo(l)
}
