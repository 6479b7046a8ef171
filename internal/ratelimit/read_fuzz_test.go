package ratelimit

import "testing"

func FuzzExhaustedFor(f *testing.F) {
	f.Add(`"a";r=0;t=9, "b\";,";r=0;t=99999999999999999999`)
	f.Fuzz(func(t *testing.T, line string) {
		if d := ExhaustedFor([]string{line}); d < 0 || d > maxWait {
			t.Errorf("%q: %v", line, d)
		}
		if text := AppendItems(nil, line, func(string) bool { return true }); len(text) > 2*len(line) {
			t.Errorf("%q became %q", line, text)
		}
	})
}
