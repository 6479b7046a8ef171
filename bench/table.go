package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weir-go/weir/bench/internal/worker"
)

// row is a cell, and what it came to.
type row struct {
	cell
	result
	missing string // why there are no figures
}

// columns are those of a table, by what a row has in them.
var columns = []struct {
	title string
	of    func(*row) string
}{
	{"contender", func(r *row) string { return r.contender.name }},
	{"algorithm", func(r *row) string { return r.contender.algorithm }},
	{"checks/s", func(r *row) string { return perSecondOf(r.Checks) }},
	{"p50", func(r *row) string { return timeOf(r.P50) }},
	{"p99", func(r *row) string { return timeOf(r.P99) }},
	{"p99.9", func(r *row) string { return timeOf(r.P999) }},
	{"allocs", func(r *row) string { return strconv.FormatFloat(r.Allocations, 'f', 1, 64) }},
	{"bytes/key", func(r *row) string {
		if r.Bytes == nil {
			return "-"
		}
		return fmt.Sprintf("%.0f", *r.Bytes)
	}},
	{"no hop", func(r *row) string { return percentOf(r.Here) }},
	{"over", func(r *row) string { return strconv.FormatInt(r.Over, 10) }},
	{"falsely denied", func(r *row) string { return strconv.FormatInt(r.Denied, 10) }},
	{"not exact", func(r *row) string { return percentOf(r.Stray + r.Failed) }},
}

// cells are a row's texts. One without figures says why in the first of them.
func (r *row) cells() []string {
	texts := make([]string, len(columns))
	for i, c := range columns {
		switch {
		case r.missing == "" || i < 2:
			texts[i] = c.of(r)
		case i == 2:
			texts[i] = r.missing
		}
	}
	return texts
}

func titles() []string {
	texts := make([]string, len(columns))
	for i, c := range columns {
		texts[i] = c.title
	}
	return texts
}

func perSecondOf(n float64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%.3g M", n/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.0f k", n/1e3)
	}
	return fmt.Sprintf("%.0f", n)
}

// timeOf has two digits, or three.
func timeOf(d time.Duration) string {
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

// percentOf says 0 and 100 of nothing and all alone.
func percentOf(share float64) string {
	p := 100 * share
	if p > 0 && p < 1 || p > 99 && p < 100 {
		p = math.Min(math.Max(p, .01), 99.99)
		return fmt.Sprintf("%.2f %%", p)
	}
	return fmt.Sprintf("%.0f %%", p)
}

// environment is what figures depend on, besides the code.
type environment struct {
	Go        string            `json:"go"`
	OS        string            `json:"os"`
	CPU       string            `json:"cpu"`
	CPUs      int               `json:"cpus"`
	Redis     string            `json:"redis,omitempty"`
	Weir      string            `json:"weir,omitempty"` // the revision that this is built from
	Libraries map[string]string `json:"libraries"`
	Duration  string            `json:"for"`
	Count     int               `json:"count"`
	Callers   int               `json:"callers"`
	Date      string            `json:"date"`
}

// compared are the libraries that contenders are made of.
var compared = []string{
	"golang.org/x/time", "github.com/throttled/throttled/v2", "github.com/go-chi/httprate", "github.com/sethvargo/go-limiter",
	"github.com/ulule/limiter/v3", "github.com/go-redis/redis_rate/v10", "github.com/redis/go-redis/v9", "github.com/redis/rueidis",
}

func environmentOf(s settings) (e environment, err error) {
	e = environment{
		Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH, CPU: cpu(), CPUs: runtime.NumCPU(),
		Libraries: make(map[string]string), Date: time.Now().UTC().Format(time.DateOnly),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if slices.Contains(compared, d.Path) {
				e.Libraries[d.Path] = d.Version
			}
		}
		for _, of := range info.Settings {
			if of.Key == "vcs.revision" {
				e.Weir = of.Value
			}
		}
	}
	if s.redis != nil {
		e.Redis, err = s.redis.version()
	}
	return e, err
}

// cpu is what the machine calls its processor, where it says so.
func cpu() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// String is one sentence of it.
func (e *environment) String() string {
	redis := "no Redis"
	if e.Redis != "" {
		redis = "Redis " + e.Redis
	}
	return fmt.Sprintf("%s: %d × %s, %s, %s, %s; %d callers of those that ask another process, medians of %d runs of %s.",
		e.Date, e.CPUs, e.CPU, e.OS, e.Go, redis, e.Callers, e.Count, e.Duration)
}

// byWorkload calls do with the rows of each workload.
func byWorkload(rows []row, do func(w worker.Workload, rows []row) error) error {
	for len(rows) > 0 {
		w := rows[0].workload
		n := slices.IndexFunc(rows, func(r row) bool { return r.workload.Name != w.Name })
		if n < 0 {
			n = len(rows)
		}
		if err := do(w, rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

func printTable(out io.Writer, e environment, rows []row) error {
	tabs := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	err := byWorkload(rows, func(w worker.Workload, rows []row) error {
		fmt.Fprintf(tabs, "\n%s: %s\n%s\t\n", w.Name, w.Says, strings.Join(titles(), "\t"))
		for i := range rows {
			if rows[i].missing != "" {
				fmt.Fprintf(tabs, "%s\t%s\t  %s\n", rows[i].contender.name, rows[i].contender.algorithm, rows[i].missing)
				continue
			}
			fmt.Fprintf(tabs, "%s\t\n", strings.Join(rows[i].cells(), "\t"))
		}
		return tabs.Flush()
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, note := range notesOf(rows) {
		fmt.Fprintln(out, note)
	}
	_, err = fmt.Fprintf(out, "\n%s\n", e.String())
	return err
}

func printMarkdown(out io.Writer, e environment, rows []row) error {
	fmt.Fprintf(out, "%s\n", e.String())
	line := func(texts []string) { fmt.Fprintf(out, "| %s |\n", strings.Join(texts, " | ")) }
	err := byWorkload(rows, func(w worker.Workload, rows []row) error {
		fmt.Fprintf(out, "\n**%s**: %s.\n\n", w.Name, w.Says)
		line(titles())
		line(slices.Repeat([]string{"---"}, len(columns)))
		for i := range rows {
			line(rows[i].cells())
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, note := range notesOf(rows) {
		if _, err := fmt.Fprintf(out, "- %s\n", note); err != nil {
			return err
		}
	}
	return nil
}

// notesOf returns what each contender does less, or otherwise, each once.
func notesOf(rows []row) (notes []string) {
	for i := range rows {
		c := rows[i].contender
		if note := c.name + ": " + c.note; c.note != "" && !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	return notes
}

// printJSON prints an object for each row, a line each.
func printJSON(out io.Writer, e environment, rows []row) error {
	to := json.NewEncoder(out)
	for _, r := range rows {
		object := struct {
			Workload  string `json:"workload"`
			Contender string `json:"contender"`
			Algorithm string `json:"algorithm"`
			Missing   string `json:"missing,omitempty"`
			*result
			Environment environment `json:"environment"`
		}{r.workload.Name, r.contender.name, r.contender.algorithm, r.missing, &r.result, e}
		if r.missing != "" {
			object.result = nil
		}
		if err := to.Encode(object); err != nil {
			return err
		}
	}
	return nil
}
