package enum

import (
	"strings"
	"time"
)

// Duration returns d as people write a duration in a file: in ASCII, and without the zeros at the
// end of time.Duration.String, such as 1h instead of 1h0m0s.
func Duration(d time.Duration) string {
	text := strings.Replace(d.String(), "µ", "u", 1)
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
