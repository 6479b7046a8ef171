package clustertests

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// logbook is a slog.Handler that records all lines.
type logbook struct {
	mu    sync.Mutex
	lines []slog.Record
}

func (b *logbook) Enabled(context.Context, slog.Level) bool { return true }
func (b *logbook) WithAttrs([]slog.Attr) slog.Handler       { return b }
func (b *logbook) WithGroup(string) slog.Handler            { return b }

func (b *logbook) Handle(_ context.Context, r slog.Record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, r.Clone())
	return nil
}

// findLines returns the lines whose message begins with prefix.
func (b *logbook) findLines(prefix string) (lines []line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.lines {
		if strings.HasPrefix(r.Message, prefix) {
			l := line{r.Level, r.Time, r.Message, make(map[string]slog.Value)}
			r.Attrs(func(a slog.Attr) bool {
				l.attrs[a.Key] = a.Value
				return true
			})
			lines = append(lines, l)
		}
	}
	return lines
}

// line is a line of a log.
type line struct {
	level   slog.Level
	time    time.Time
	message string
	attrs   map[string]slog.Value
}

func (l *line) number(attr string) int64 {
	if v := l.attrs[attr]; v.Kind() == slog.KindUint64 {
		return int64(v.Uint64())
	} else if v.Kind() == slog.KindInt64 {
		return v.Int64()
	}
	return -1
}

// hostsIn returns the hosts of the members in an attribute.
func (l *line) hostsIn(attr string) string {
	list, _ := l.attrs[attr].Any().([]string)
	return hostsOf(list)
}

// hostsOf returns the hosts of these members, separated by spaces.
func hostsOf(members []string) string {
	labels := make([]string, 0, len(members))
	for _, name := range members {
		label, _, _ := strings.Cut(name, "-")
		labels = append(labels, label)
	}
	return strings.Join(labels, " ")
}

// duration returns the value of an attribute that contains a duration as text, or -1 if
// the attribute contains none. JSON would contain a number in nanoseconds.
func (l *line) duration(attr string) time.Duration {
	d, err := time.ParseDuration(l.attrs[attr].String())
	if err != nil || l.attrs[attr].Kind() != slog.KindString {
		return -1
	}
	return d
}
