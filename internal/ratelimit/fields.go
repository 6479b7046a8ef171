// Package ratelimit writes the fields of draft-ietf-httpapi-ratelimit-headers-11,
// lists of Strings with parameters (RFC 9651). Only here is it known how they are
// written.
package ratelimit

import (
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
)

// The fields, as http.Header has their names.
const (
	PolicyField = "Ratelimit-Policy" // RateLimit-Policy
	StateField  = "Ratelimit"
)

// AppendPolicy appends what a limit grants, as an item of RateLimit-Policy: q units,
// which are bytes, requests, or requests at once, in w seconds. That is what a bucket holds, in the
// time in which it fills. Of a month, whose length varies, and of what is in flight, w is
// left out.
func AppendPolicy(b []byte, l weir.Limit, bytes bool) []byte {
	b = appendItem(b, l.Name)
	b = append(b, ";q="...)
	q := l.Rate
	if l.Burst > 0 {
		q = l.Burst
	}
	b = strconv.AppendInt(b, q, 10)
	if w := window(l); w > 0 {
		b = append(b, ";w="...)
		b = strconv.AppendInt(b, w, 10)
	}
	switch {
	case l.Algorithm == weir.InFlight:
		b = append(b, `;qu="concurrent-requests"`...)
	case bytes:
		b = append(b, `;qu="content-bytes"`...)
	}
	return b
}

// window is the length of a limit's window in whole seconds, rounded up.
func window(l weir.Limit) int64 {
	const day = 24 * 60 * 60
	switch l.Calendar {
	case weir.Day:
		return day
	case weir.Week:
		return 7 * day
	case weir.Month:
		return 0
	}
	if l.Burst == 0 || l.Burst == l.Rate {
		return Seconds(l.Per)
	}
	// Two floats are near enough for what is rounded to seconds.
	return Seconds(time.Duration(min(float64(l.Burst)/float64(l.Rate)*float64(l.Per), 1e18)))
}

// AppendState appends what is left of a limit, as an item of RateLimit: r units,
// which are all that there are in the next t seconds. Of units in flight, which may come back
// at any time, t is left out.
func AppendState(b []byte, d *weir.Decision, l *weir.Limiter) []byte {
	b = appendItem(b, d.Name)
	b = append(b, ";r="...)
	b = strconv.AppendInt(b, d.Remaining, 10)
	after := ResetAfter(d, l)
	if after == 0 && l.Limit().Algorithm == weir.InFlight {
		return b
	}
	b = append(b, ";t="...)
	return strconv.AppendInt(b, Seconds(after), 10)
}

// appendItem appends a limit's name as a String, and begins its parameters. Rules
// have no name with a character that a String would have to escape, or could not
// have.
func appendItem(b []byte, name string) []byte {
	b = append(b, '"')
	b = append(b, name...)
	return append(b, '"')
}

// AppendItems appends the items of a field, without the items of the names that skips reports,
// and separates them by commas. Other libraries may have written the field: an item without a
// String is kept as it is.
func AppendItems(b []byte, field string, skips func(name string) bool) []byte {
	begin := len(b)
	for field != "" {
		end, quoted := len(field), false
		for i := 0; i < len(field); i++ {
			switch c := field[i]; {
			case c == '\\' && quoted:
				i++
			case c == '"':
				quoted = !quoted
			case c == ',' && !quoted:
				end = i
			}
			if end < len(field) {
				break
			}
		}
		item := strings.Trim(field[:end], " \t")
		field = field[min(end+1, len(field)):]
		if text, ok := strings.CutPrefix(item, `"`); ok {
			if name, _, ok := strings.Cut(text, `"`); ok && skips(name) {
				continue
			}
		}
		if item != "" {
			if len(b) > begin {
				b = append(b, ", "...)
			}
			b = append(b, item...)
		}
	}
	return b
}

// Seconds returns whole seconds, rounded up: a client that comes back then is not too early.
func Seconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}
