package rules

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/internal/strictyaml"
)

// windows reads the time windows of the file.
func (p *parser) windows(v strictyaml.Value) {
	items := v.List()
	if len(items) > maxWindows {
		v.Errorf("times has %d entries: use at most %d", len(items), maxWindows)
		return
	}
	for _, item := range items {
		m := item.Map(windowFields...)
		name := m.Get("name").Required()
		w := &TimeWindow{Name: name.Text(), to: minutesOfDay, zone: time.UTC}
		if w.Name != "" || name.IsText() {
			checkName(name, w.Name)
			p.checkUnique(name, "time", w.Name)
		}
		for _, day := range namesIn(m.Get("days"), "day", dayNames, foreignDay) {
			w.days |= 1 << weekday(slices.Index(dayNames, day))
		}
		if !m.Get("days").Present() {
			w.days = 1<<7 - 1
		}
		w.from = minuteOf(m.Get("from"), "from", minutesOfDay-1)
		if to := m.Get("to"); to.Present() {
			w.to = minuteOf(to, "to", minutesOfDay)
			if w.to == w.from {
				to.Errorf("to is the same as from: leave both out for the whole day")
			} else if w.to < w.from {
				w.to += minutesOfDay
			}
		}
		if loc, err := time.LoadLocation(p.zone(m.Get("zone"), true)); err == nil {
			w.zone = loc
		}
		p.set.windows = append(p.set.windows, w)
	}
}

// minuteOf reads a time of the day, with or without quotes, as minutes after midnight.
func minuteOf(v strictyaml.Value, field string, most int) int {
	text := v.Literal()
	t, err := time.Parse("15:04", text)
	minute := 60*t.Hour() + t.Minute()
	if text == "24:00" {
		minute, err = minutesOfDay, nil
	}
	if text != "" && (err != nil || len(text) != len("15:04") || minute > most) {
		v.Errorf("%s is %q: use a time of the day from 00:00 to %02d:%02d, with two digits for the hour", field, text, most/60, most%60)
		return 0
	}
	return minute
}

// foreignDay returns the correction of a text that is meant as one or more days, or "".
func foreignDay(text string) string {
	lower := strings.ToLower(text)
	switch {
	case slices.Contains(dayNames, text):
		return ""
	case strings.ContainsAny(text, "-,"):
		return "list each day, like [mon, tue]"
	case len(lower) >= 3 && slices.Contains(dayNames, lower[:3]):
		return "write " + lower[:3]
	}
	return ""
}

// limitTimes reads the numbers of a limit in time windows. A window either multiplies the numbers of the
// tiers or replaces them. keeps has the kept parts of the limit and of its tiers, as limitTiers returned
// them.
func (p *parser) limitTimes(l *Limit, v strictyaml.Value, keeps []keep) {
	if v.Present() && l.tiers == nil {
		l.tiers = slices.Repeat([]weir.Limit{l.base}, len(p.set.tiers)) // a window may change some of them
	}
	for _, e := range v.Entries() {
		m := e.Value.Map(timeFields...)
		multiply := m.Get("multiply")
		_, set := p.tiersOf(m.Get("tiers"))
		by, own := 0.0, weir.Limit{}
		if multiply.Present() {
			by = multiply.Float(0.001, 1_000_000)
			for _, field := range numberFields {
				if other := m.Get(field); other.Present() {
					other.Errorf("%s with multiply: use one of them", field)
				}
			}
		} else if e.Value.IsMap() && !m.Get("rate").Present() {
			e.Value.Errorf("%s changes nothing: add multiply, or a rate", e.Field)
			continue
		} else {
			own, _ = p.tierNumbers(l.base, l.keep, m)
		}
		t := limitTime{window: slices.IndexFunc(p.set.windows, func(w *TimeWindow) bool { return w.Name == e.Field })}
		if t.window < 0 {
			e.Key.Errorf("unknown time %q: %s", e.Field, enum.Suggest(e.Field, listNames(p.set.windows, func(w *TimeWindow) string { return w.Name })))
			continue
		}
		t.numbers = p.timeNumbers(l, e.Value, set, by, own, keeps)
		l.times = append(l.times, t)
	}
	slices.SortFunc(l.times, func(a, b limitTime) int { return cmp.Compare(a.window, b.window) })
}

// timeNumbers returns the numbers of a limitTime for the given set of tiers, or for all requests if the
// set is empty. The numbers are those of the tiers multiplied by the argument by, or the argument own if by
// is 0. Invalid numbers are zero, and have added an error.
func (p *parser) timeNumbers(l *Limit, v strictyaml.Value, tiers uint64, by float64, own weir.Limit, keeps []keep) []weir.Limit {
	numbers := make([]weir.Limit, 1+len(l.tiers))
	valid := make(map[weir.Limit]bool)
	for variant := range numbers {
		if tiers != 0 && (variant == 0 || tiers&(1<<(variant-1)) == 0) {
			continue
		}
		t := own
		if by != 0 {
			t = l.numbers(variant)
			t.Rate, t.Burst = scaleUnits(t.Rate, by), scaleUnits(t.Burst, by)
			t = keeps[variant].applyTo(t)
		}
		if _, known := valid[t]; !known && isWhole(&t) {
			if valid[t] = t.Rate <= maxRate && t.Burst <= maxRate; valid[t] {
				valid[t] = p.isValid(v, t, l.soft)
			} else {
				v.Errorf("the multiplied rate or burst is %d: use at most %d", max(t.Rate, t.Burst), int64(maxRate))
			}
		}
		if valid[t] {
			numbers[variant] = t
		}
	}
	return numbers
}
