// Package ratelimit writes and reads the fields of draft-ietf-httpapi-ratelimit-headers-11, which are
// lists of Strings with parameters (RFC 9651). No other package knows their format. It also reads Retry-After.
package ratelimit

import (
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
)

// The names of the fields, in the form of http.Header.
const (
	PolicyField = "Ratelimit-Policy" // RateLimit-Policy
	StateField  = "Ratelimit"
)

// AppendPolicy appends a limit as an item of RateLimit-Policy: the limit grants q units in w
// seconds, without the kept units. The units are bytes, requests, or concurrent requests. For a
// bucket, q is the capacity, and w is the time in which the bucket fills. There is no w for a
// month, whose length varies, or for an InFlight limit.
func AppendPolicy(b []byte, l weir.Limit, bytes bool) []byte {
	b = appendItem(b, l.Name)
	b = append(b, ";q="...)
	q := l.Rate
	if l.Burst > 0 {
		q = l.Burst
	}
	q -= l.Keep
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

// window returns the length of the window of a limit in whole seconds, rounded up, or 0 for no w.
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
	// Floats are precise enough, because the result is rounded to seconds.
	return Seconds(time.Duration(min(float64(l.Burst)/float64(l.Rate)*float64(l.Per), 1e18)))
}

// AppendState appends the rest of a limit as an item of RateLimit: there are r units for the next t
// seconds, and then the whole limit. There is no t for an InFlight limit if ResetAfter is 0, because
// units return at any time.
//
// The time t has this meaning after a denial as well. If it were sometimes the time of the next unit, a client could
// not interpret it. The draft advises a Retry-After no earlier than t, which would delay clients while units are free.
func AppendState(b []byte, d *weir.Decision, l *weir.Limiter) []byte {
	b = appendItem(b, d.Name)
	b = append(b, ";r="...)
	b = strconv.AppendInt(b, d.Remaining, 10)
	if d.ResetAfter == 0 && l.Limit().Algorithm == weir.InFlight {
		return b
	}
	b = append(b, ";t="...)
	return strconv.AppendInt(b, Seconds(d.ResetAfter), 10)
}

// AppendUsed appends the used part of a limit as an item of X-RateLimit-Warning, in whole percent.
func AppendUsed(b []byte, d *weir.Decision) []byte {
	b = appendItem(b, d.Name)
	b = append(b, ";used="...)
	return strconv.AppendInt(b, int64(100*float64(d.Limit-d.Remaining)/float64(d.Limit)), 10)
}

// appendItem appends the name of a limit as a String. The parameters follow. The names of rules
// have no characters that a String must escape or cannot contain.
func appendItem(b []byte, name string) []byte {
	b = append(b, '"')
	b = append(b, name...)
	return append(b, '"')
}

// AppendItems appends the items of a field, separated by commas, without the items for whose names
// skips returns true. Another library may have written the field: an item without a String is kept
// unchanged.
func AppendItems(b []byte, field string, skips func(name string) bool) []byte {
	begin := len(b)
	for field != "" {
		var item string
		item, field = cutUnquoted(field, ',')
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

// Seconds returns whole seconds, rounded up, so that a client that waits as long is not too early.
func Seconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}
