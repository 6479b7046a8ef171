package strictyaml

import (
	"math"
	"strings"
	"time"
	"unicode"
)

const day = 24 * time.Hour

// units lists the common names for units of time, in lower case and without a plural s. A
// month and a year have the lengths that a sliding window can have.
var units = []struct {
	length time.Duration
	names  []string
}{
	{time.Millisecond, []string{"ms", "msec", "milli", "millisecond"}},
	{time.Second, []string{"s", "sec", "second"}},
	{time.Minute, []string{"m", "min", "minute"}},
	{time.Hour, []string{"h", "hr", "hour"}},
	{day, []string{"d", "day"}},
	{7 * day, []string{"w", "wk", "week"}},
	{30 * day, []string{"mo", "mon", "mth", "month"}},
	{365 * day, []string{"y", "yr", "year"}},
}

func unitOf(name string) (time.Duration, bool) {
	if name == "M" {
		return 0, false // a minute or a month, depending on the reader
	}
	name = strings.ToLower(name)
	for _, u := range units {
		for _, n := range u.names {
			if name == n || name == n+"s" && len(n) > 1 {
				return u.length, true
			}
		}
	}
	return 0, false
}

// TimeMeant returns the probable duration of a text that time.ParseDuration does not
// accept, such as 1d, 2 weeks, 1h 30min or minute.
func TimeMeant(text string) (d time.Duration, ok bool) {
	rest := strings.TrimSpace(text)
	if d, ok := unitOf(rest); ok {
		return d, true
	}
	for rest != "" {
		digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789."))]
		rest = strings.TrimSpace(rest[len(digits):])
		name := rest[:len(rest)-len(strings.TrimLeftFunc(rest, unicode.IsLetter))]
		rest = strings.TrimLeft(rest[len(name):], " ")
		x, isNumber := number(digits)
		unit, known := unitOf(name)
		sum := float64(d) + x*float64(unit)
		if !isNumber || !known || sum <= 0 || sum >= math.MaxInt64 {
			return 0, false
		}
		d = time.Duration(math.Round(sum))
	}
	return d, d > 0
}
