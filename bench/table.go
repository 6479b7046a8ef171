package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// row is a cell with its figures.
type row struct {
	cell
	result
	missing string // the reason why there are no figures
}

var columns = []string{"contender", "checks/s", "p50", "p99", "no hop", "not exact"}

// cells returns the texts of a row. A row without figures has the reason in its second cell.
func (r *row) cells() []string {
	texts := make([]string, len(columns))
	if texts[0], texts[1] = r.contender.name, r.missing; r.missing == "" {
		copy(texts[1:], []string{formatRate(r.Checks), formatDuration(r.P50), formatDuration(r.P99), formatPercent(r.Here), formatPercent(r.NotExact)})
	}
	return texts
}

func formatRate(n float64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%.3g M", n/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.0f k", n/1e3)
	}
	return fmt.Sprintf("%.0f", n)
}

// formatDuration returns d with two or three digits, or with one digit if d is less than
// 10 ns.
func formatDuration(d time.Duration) string {
	unit := time.Nanosecond
	for unit < time.Second && d >= 1000*unit {
		unit *= 1000
	}
	digits := 0
	if d < 10*unit && unit > 1 {
		digits = 1
	}
	name := map[time.Duration]string{1: "ns", time.Microsecond: "µs", time.Millisecond: "ms", time.Second: "s"}[unit]
	return fmt.Sprintf("%.*f %s", digits, float64(d)/float64(unit), name)
}

// formatPercent returns 0 % only for zero, and 100 % only for one.
func formatPercent(share float64) string {
	p := 100 * share
	if p > 0 && p < 1 || p > 99 && p < 100 {
		p = math.Min(math.Max(p, .01), 99.99)
		return fmt.Sprintf("%.2f %%", p)
	}
	return fmt.Sprintf("%.0f %%", p)
}

// describeRun returns the conditions of a run in a sentence.
func describeRun(o options, s settings) (string, error) {
	redis := "no Redis"
	if s.redis != nil {
		version, err := s.redis.version()
		if err != nil {
			return "", err
		}
		redis = "Redis " + version
	}
	return fmt.Sprintf("%s: %d × %s, %s/%s, %s, %s; %d callers of contenders that send checks to another process, medians of %d runs of %v.",
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), processor(), runtime.GOOS, runtime.GOARCH, runtime.Version(), redis, o.callers, o.count, o.duration), nil
}

// processor returns the model name of the CPU, or the architecture.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	if name := regexp.MustCompile(`(?m)^model name\s*: (.*\S)`).FindSubmatch(text); name != nil {
		return string(name[1])
	}
	return runtime.GOARCH
}

// printTables prints a table for each workload in Markdown, and the notes of the contenders.
func printTables(out io.Writer, conditions string, rows []row) error {
	fmt.Fprintf(out, "%s\n", conditions)
	line := func(texts []string) { fmt.Fprintf(out, "| %s |\n", strings.Join(texts, " | ")) }
	var notes []string
	for i := range rows {
		r := &rows[i]
		if i == 0 || r.workload.Name != rows[i-1].workload.Name {
			fmt.Fprintf(out, "\n**%s**: %s.\n\n", r.workload.Name, r.workload.Says)
			line(columns)
			line(slices.Repeat([]string{"---"}, len(columns)))
		}
		line(r.cells())
		if note := r.contender.name + ": " + r.contender.note; !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	_, err := fmt.Fprintf(out, "\n- %s\n", strings.Join(notes, "\n- "))
	return err
}
