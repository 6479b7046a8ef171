package enum

import (
	"strings"
	"time"
)

// Duration returns d as people write it in a file: without the zeros that
// time.Duration.String ends with, 1h and not 1h0m0s, and in ASCII.
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
