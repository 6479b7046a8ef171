package lab

import (
	"slices"
	"strings"
	"sync"
)

// Text is text, such as a log, that can be read while it is written. The zero value of
// Text is empty. The methods of Text are safe for concurrent use.
type Text struct {
	Most int // maximum number of bytes that are kept, from the end; no maximum if zero

	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer, and never fails.
func (t *Text) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if excess := len(t.text) - t.Most; t.Most > 0 && excess > 0 {
		t.text = append(t.text[:0], t.text[excess:]...)
	}
	return len(b), nil
}

// String returns the text so far.
func (t *Text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// Lines returns the lines that contain each of these words, with their line ends.
func (t *Text) Lines(words ...string) (lines []string) {
	for line := range strings.Lines(t.String()) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			lines = append(lines, line)
		}
	}
	return lines
}
