package envoylimit

import (
	"fmt"
	"strings"
)

// setValue sets what an entry's value is compared with. Each * of it stands for any
// text, also for none, as in envoyproxy/ratelimit; neither has a way to write the
// character itself.
func (d *descriptor) setValue(value string) {
	d.value = value
	if strings.Contains(value, "*") {
		d.parts = strings.Split(value, "*")
	}
}

// keyError says what is wrong with a key that has a *. It is a pattern of keys and
// values together in envoyproxy/ratelimit, and would match nothing here.
func keyError(key string) error {
	if !strings.Contains(key, "*") {
		return nil
	}
	return fmt.Errorf("key is %q: only a value can be a pattern: name each key in a descriptor of its own", key)
}

// The work of comparing a value with a pattern: that of any, and how many bytes are
// compared or searched at the cost of one byte of a key.
const (
	workOfMatch = 8
	workPerByte = 16
)

// fits reports whether a value fits the pattern. Of several ways to fit it finds the one
// in which each part comes as early as it can, so it searches each byte once.
func (d *descriptor) fits(w *work, value string) (bool, error) {
	if err := w.add(workOfMatch + min(len(d.value), len(value))/workPerByte); err != nil {
		return false, err
	}
	first, middle, last := d.parts[0], d.parts[1:len(d.parts)-1], d.parts[len(d.parts)-1]
	if len(value) < len(first)+len(last) || !strings.HasPrefix(value, first) || !strings.HasSuffix(value, last) {
		return false, nil
	}
	if len(middle) == 0 {
		return true, nil
	}
	value = value[len(first) : len(value)-len(last)]
	if err := w.add(len(middle) + len(value)/workPerByte); err != nil {
		return false, err
	}
	for _, part := range middle {
		at := strings.Index(value, part)
		if at < 0 {
			return false, nil
		}
		value = value[at+len(part):]
	}
	return true, nil
}
