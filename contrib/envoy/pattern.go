package envoylimit

import (
	"fmt"
	"strings"
)

// setValue sets the value with which an entry is compared. As in envoyproxy/ratelimit, each * in
// the value matches any text, including the empty text, and cannot be escaped.
func (d *descriptor) setValue(value string) {
	d.value = value
	if strings.Contains(value, "*") {
		d.parts = strings.Split(value, "*")
	}
}

// keyError returns an error if a key contains a *. In envoyproxy/ratelimit, such a key is a
// pattern for the key and the value of an entry. Here, the key would match no entry.
func keyError(key string) error {
	if !strings.Contains(key, "*") {
		return nil
	}
	return fmt.Errorf(`"key" is %q, and only a value can be a pattern: use a descriptor for each key`, key)
}

// The work of comparing a value with a pattern: the units of work for each comparison, and the
// number of compared or searched bytes that count as another unit.
const (
	workOfMatch  = 8
	bytesPerUnit = 16
)

// fits reports whether a value matches the pattern. Each part is matched at the earliest
// possible position, so that each byte is searched once.
func (d *descriptor) fits(w *work, value string) (bool, error) {
	if err := w.add(workOfMatch + min(len(d.value), len(value))/bytesPerUnit); err != nil {
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
	if err := w.add(len(middle) + len(value)/bytesPerUnit); err != nil {
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
