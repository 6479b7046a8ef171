package ratelimit

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxWait bounds the seconds that a field requests. It is the longest period of a limit.
const maxWait = 366 * 24 * time.Hour

// ExhaustedFor reads the lines of a field RateLimit, and returns the time until all its limits have
// units: the longest t of the items with r=0. It returns 0 if no item has r=0 and a t. It skips items
// that it cannot read.
func ExhaustedFor(lines []string) (longest time.Duration) {
	for _, field := range lines {
		for field != "" {
			var item string
			item, field = cutUnquoted(field, ',')
			longest = max(longest, exhaustedFor(item))
		}
	}
	return longest
}

func exhaustedFor(item string) time.Duration {
	if !strings.HasPrefix(item, `"`) {
		return 0
	}
	var remaining, window string
	_, item = cutUnquoted(item, ';') // the name of the limit
	for item != "" {
		var parameter string
		parameter, item = cutUnquoted(item, ';')
		switch name, value, _ := strings.Cut(parameter, "="); name {
		case "r":
			remaining = value
		case "t":
			window = value
		}
	}
	if left, err := strconv.ParseUint(remaining, 10, 64); err != nil || left > 0 {
		return 0
	}
	return readSeconds(window)
}

// RetryAfter returns the time that the field Retry-After of a response requests, or 0. The clock of the server
// may differ, so the time until a date counts from the Date of the response.
func RetryAfter(header http.Header, now time.Time) time.Duration {
	after := header.Get("Retry-After")
	at, err := http.ParseTime(after)
	if err != nil {
		return readSeconds(after)
	}
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		now = date
	}
	return max(at.Sub(now), 0)
}

// readSeconds returns a decimal number of whole seconds, at most 366 days, and 0 for any other text.
func readSeconds(digits string) time.Duration {
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil && n == 0 { // n is the largest number if digits exceed it
		return 0
	}
	return time.Duration(min(n, uint64(maxWait/time.Second))) * time.Second
}

// cutUnquoted returns the text before and after the first separator outside of Strings, without spaces
// around the text before it.
func cutUnquoted(field string, separator byte) (before, after string) {
	quoted := false
	for i := 0; i < len(field); i++ {
		switch c := field[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == separator && !quoted:
			return strings.Trim(field[:i], " \t"), field[i+1:]
		}
	}
	return strings.Trim(field, " \t"), ""
}
