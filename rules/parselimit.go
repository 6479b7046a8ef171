package rules

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/internal/strictyaml"
)

func (p *parser) limits(r *Rule, rule, one, many strictyaml.Value, base weir.Limit) {
	var values []strictyaml.Value
	switch {
	case one.Present() && many.Present():
		many.Errorf("limits and limit in one rule: remove one of them")
		return
	case one.Present():
		values = []strictyaml.Value{one}
	case many.Present():
		if values = many.List(); len(values) == 0 {
			many.Errorf("limits is empty: add a limit, because a rule needs one")
		}
		if len(values) > maxLimits {
			many.Errorf("limits has %d entries: use at most %d in a rule", len(values), maxLimits)
		}
	default:
		rule.Errorf("limit is missing")
	}
	r.Limits = make([]Limit, len(values))
	for i, v := range values {
		m := v.Map(limitFields...)
		l := &r.Limits[i]
		l.set, l.soft, l.Index = p.set, r.Soft, len(p.set.limits)
		l.Name, l.Warn = r.Name, warn(m.Get("warn"), r.warn)
		if name := m.Get("name"); name.Present() {
			checkName(name, name.Text())
			l.Name += "/" + name.Text()
		} else if len(values) > 1 {
			l.Name += "/" + strconv.Itoa(i+1)
		}
		if r.Name != "" && i > 0 {
			p.checkUnique(v, "limit", l.Name)
		} else {
			line, _ := v.Position()
			p.lines["limit "+l.Name] = line
		}
		l.base = base
		l.base.Name = l.Name
		p.limit(r, l, v, m)
		p.set.limits = append(p.set.limits, l)
		p.set.ruleOf = append(p.set.ruleOf, r)
		p.set.names[l.Name] = l
	}
}

func (p *parser) limit(r *Rule, l *Limit, v strictyaml.Value, m strictyaml.Map) {
	at := v
	l.base.Algorithm = weir.SlidingWindow
	calendar := m.Get("calendar")
	if calendar.Present() {
		l.base.Algorithm = weir.FixedWindow
		l.base.Calendar = p.calendar(calendar)
	}
	if algorithm := m.Get("algorithm"); algorithm.Present() {
		at = algorithm
		l.base.Algorithm = strictyaml.Named[weir.Algorithm](algorithm)
		if calendar.Present() && l.base.Algorithm != weir.FixedWindow {
			calendar.Errorf("calendar with %s: remove calendar or use fixed_window, because only fixed_window has calendar windows", algorithm.Text())
			l.base.Calendar = 0
		}
	}
	if l.base.Algorithm == weir.InFlight {
		l.base.Ban = weir.Ban{}
	}
	l.place = at.ErrorAt("")
	l.base.Zone = p.zone(m.Get("zone"), calendar.Present())
	if !calendar.Present() && l.base.Algorithm != weir.InFlight {
		m.Get("per").Required()
	}
	l.base, l.keep = p.tierNumbers(l.base, keep{}, m)
	good := isWhole(&l.base) && p.isValid(v, l.base, l.soft)
	keeps := p.limitTiers(r, l, v, m.Get("tiers"), good)
	p.limitTimes(l, m.Get("times"), keeps)
	p.values(r, l, m.Get("values"))
}

// isWhole reports whether the limit has all required numbers. An error was already added for a
// missing number.
func isWhole(l *weir.Limit) bool {
	return l.Rate > 0 && (l.Per > 0 || l.Calendar != weir.NoCalendar || l.Algorithm == weir.InFlight)
}

// refusePer reports an error for a per of an in_flight limit.
func refusePer(per strictyaml.Value) {
	if per.Present() {
		per.Errorf("per with in_flight: remove per, because units in flight come back when requests end, not with time")
	}
}

// isValid reports whether a node would accept a limit. If not, an error is added.
func (p *parser) isValid(v strictyaml.Value, l weir.Limit, soft Soft) bool {
	if l.Name == "" {
		l.Name = "the rule has none" // the missing name has its own error
	}
	l.Zone = "" // the zone was already validated
	err := l.Validate()
	if s, ok := soft.overrun(l); ok && err == nil && s.Per > 0 {
		err = s.Validate()
	}
	if err != nil {
		v.Errorf("%s", strings.ReplaceAll(err.Error(), weir.ErrInvalid.Error()+" Limit: ", ""))
	}
	return err == nil
}

func (p *parser) zone(v strictyaml.Value, calendar bool) string {
	zone := v.Text()
	switch {
	case !v.IsText():
	case !calendar:
		v.Errorf("zone without calendar: remove zone or add calendar, because only calendar windows have a zone")
	case zone == "" || zone == "Local":
		v.Errorf("zone is %q: use a name like Europe/Berlin or UTC", zone)
	default:
		known, ok := p.zones[zone]
		if !ok {
			_, err := time.LoadLocation(zone)
			known = err == nil
			p.zones[zone] = known
		}
		if !known {
			v.Errorf("unknown zone %q: use a name like Europe/Berlin or UTC", zone)
			return ""
		}
		return zone
	}
	return ""
}

func (p *parser) calendar(v strictyaml.Value) weir.Calendar {
	calendar := strictyaml.Named[weir.Calendar](v)
	if v.IsText() && v.Text() == weir.NoCalendar.String() {
		v.Errorf("calendar is %v: leave it out, or use %v, %v or %v", calendar, weir.Day, weir.Week, weir.Month)
	}
	return calendar
}

// calendarLengths are the periods that people may write for windows of the calendar.
var calendarLengths = map[time.Duration]weir.Calendar{
	24 * time.Hour: weir.Day, 7 * 24 * time.Hour: weir.Week, 30 * 24 * time.Hour: weir.Month,
}

func (p *parser) per(v strictyaml.Value) time.Duration {
	if v.IsText() {
		text := v.Text()
		_, err := time.ParseDuration(text)
		meant, _ := strictyaml.TimeMeant(text)
		if calendar, ok := calendarLengths[meant]; ok && err != nil {
			v.Errorf("per is %q: write %s, or calendar: %v for the calendar's %v", text, enum.Duration(meant), calendar, calendar)
			return 0
		}
	}
	return duration(v, minPer, maxPer)
}

// limitTiers sets the numbers of each tier, and returns the kept parts of the limit and of the tiers. If
// the limit itself is invalid, its error is not repeated for each tier.
func (p *parser) limitTiers(r *Rule, l *Limit, v, tiers strictyaml.Value, good bool) (keeps []keep) {
	own := make(map[string]strictyaml.Value)
	for _, e := range tiers.Entries() {
		if !slices.Contains(p.set.tiers, e.Field) {
			e.Key.Errorf("unknown tier %q: %s", e.Field, enum.Suggest(e.Field, p.set.tiers))
			continue
		}
		own[e.Field] = e.Value
	}
	changed := false
	variants := make([]weir.Limit, len(p.set.tiers))
	keeps = slices.Repeat([]keep{l.keep}, 1+len(variants))
	for i, tier := range p.set.tiers {
		t := l.base
		variants[i] = t
		at, mine := own[tier]
		if mine {
			t, keeps[1+i] = p.tierNumbers(t, l.keep, at.Map(numberFields...))
		} else {
			at = v
			if !r.multiplied {
				continue
			}
			t.Rate, t.Burst = scaleUnits(t.Rate, p.multiply[i]), scaleUnits(t.Burst, p.multiply[i])
			t = l.keep.applyTo(t)
		}
		changed = changed || t != l.base
		variants[i] = t
		if t == l.base || !isWhole(&t) {
			continue
		}
		if t.Rate > maxRate || t.Burst > maxRate {
			at.Errorf("in tier %q the multiplied rate or burst is %d: use at most %d", tier, max(t.Rate, t.Burst), int64(maxRate))
			continue
		}
		if good || mine {
			p.isValid(at, t, l.soft)
		}
	}
	if changed {
		l.tiers = variants
	}
	return keeps
}

// tierNumbers returns the limit t with the numbers in a map, such as that of a tier, and its kept part, which is
// k unless the map has the field keep. Without a per in the map, the Per of t stays.
func (p *parser) tierNumbers(t weir.Limit, k keep, m strictyaml.Map) (weir.Limit, keep) {
	t.Rate = m.Get("rate").Required().Int(1, maxRate)
	switch per := m.Get("per"); {
	case !per.Present():
	case t.Algorithm == weir.InFlight:
		refusePer(per)
	case t.Calendar != weir.NoCalendar:
		per.Errorf("per with calendar: remove per or calendar, because the calendar determines the period")
	default:
		t.Per = p.per(per)
	}
	t.Burst = p.burst(m.Get("burst"), t.Algorithm)
	if own := m.Get("keep"); own.Present() {
		k = p.keep(own, &t)
	}
	return k.applyTo(t), k
}

func (p *parser) burst(v strictyaml.Value, a weir.Algorithm) int64 {
	if v.Present() && !isBucket(a) {
		v.Errorf("burst with %v: remove burst, because only token_bucket and leaky_bucket have a burst", a)
		return 0
	}
	return v.Int(1, maxRate)
}

// scaleUnits multiplies units and rounds down, to at least 1 and at most 2*maxRate. 0 stays 0.
func scaleUnits(n int64, factor float64) int64 {
	if n == 0 {
		return 0
	}
	return max(1, int64(min(float64(n)*factor, 2*maxRate)))
}

func isBucket(a weir.Algorithm) bool { return a == weir.TokenBucket || a == weir.LeakyBucket }
