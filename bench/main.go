package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/weir-go/weir/bench/internal/worker"
	"github.com/weir-go/weir/internal/lab"
)

func main() {
	if name := os.Getenv(worker.RoleVariable); name != "" {
		if err := worker.Play(name, map[string]worker.Role{worker.Name: worker.Serve(begin), sizerRole: serveSizer}[name]); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", name, err)
			os.Exit(1)
		}
		return
	}
	lab.Main(run)
}

// options are the flags.
type options struct {
	duration time.Duration
	count    int
	callers  int
	only     *regexp.Regexp
	json     bool
	markdown bool
	brief    bool
	sizing   bool
	keys     []int // of sizing
}

// maxCallers bounds the goroutines that ask.
const maxCallers = 10_000

func parse(args []string, errOut io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.DurationVar(&o.duration, "for", time.Second, "how long each contender is measured under each workload, each time")
	flags.IntVar(&o.count, "count", 3, "how often; they take turns, and the table has the medians")
	flags.IntVar(&o.callers, "callers", 64, "how many goroutines ask those that ask another process, over all nodes and at least one on each; one for each CPU asks the others")
	only := flags.String("only", "", "`regexp` of workload/contender/algorithm; all if empty")
	flags.BoolVar(&o.json, "json", false, "print a JSON object for each row")
	flags.BoolVar(&o.markdown, "markdown", false, "print the tables of bench/tables.txt")
	flags.BoolVar(&o.brief, "brief", false, "measure the rows of bench/brief.txt, which README.md shows, within a minute")
	flags.BoolVar(&o.sizing, "sizing", false, "print what a check takes of CPU and a key of memory, as docs/deploy.md has it, and nothing else; -for is how long each way is asked")
	o.keys = []int{worker.Million, 3 * worker.Million}
	flags.Func("keys", "with -sizing, how many keys, separated by commas (default 1000000,3000000)", func(text string) (err error) {
		o.keys, err = readKeys(text)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.brief {
		o.shorten(flags, only)
	}
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, fmt.Errorf("bench: -only: %w", err)
	}
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("bench: %q: there are flags alone", flags.Args())
	case o.duration < time.Millisecond || o.duration > time.Hour:
		err = fmt.Errorf("bench: -for is %v: it must be from 1ms to 1h", o.duration)
	case o.count < 1 || o.count > 1000:
		err = fmt.Errorf("bench: -count is %d: it must be from 1 to 1000", o.count)
	case o.callers < 1 || o.callers > maxCallers:
		err = fmt.Errorf("bench: -callers is %d: it must be from 1 to %d", o.callers, maxCallers)
	case o.json && o.markdown:
		err = errors.New("bench: -json and -markdown: choose one")
	case o.sizing && (o.json || o.markdown || o.brief):
		err = errors.New("bench: -sizing prints tables of its own: leave -json, -markdown and -brief out")
	}
	return o, err
}

// briefRows are those that README.md shows.
const briefRows = "^(hot|uniform|flood)/(weir-(owned|forwarded)|redis_rate|gubernator-(owned|forwarded))/" + bucketed + "$"

// shorten chooses the brief rows, and how long they are measured, but for what other flags say.
func (o *options) shorten(flags *flag.FlagSet, only *string) {
	set := make(map[string]bool)
	flags.Visit(func(f *flag.Flag) { set[f.Name] = true })
	if !set["only"] {
		*only = briefRows
	}
	if !set["for"] {
		o.duration = 500 * time.Millisecond
	}
	if !set["count"] {
		o.count = 1
	}
}

// cells are those that are chosen, in the table's order.
func (o *options) cells() (chosen []cell) {
	for _, w := range worker.Workloads(1) {
		for _, c := range contenders() {
			if cell := (cell{w, c}); cell.is() && o.only.MatchString(cell.String()) {
				chosen = append(chosen, cell)
			}
		}
	}
	return chosen
}

// run measures what is chosen, and prints it as it is chosen.
func run(ctx context.Context, args []string, out, errOut io.Writer) (err error) {
	o, err := parse(args, errOut)
	if err != nil {
		return err
	}
	if o.sizing {
		return size(ctx, o.duration, sizedKeys, o.keys, out)
	}
	cells := o.cells()
	if len(cells) == 0 {
		return fmt.Errorf("bench: -only is %q: no workload/contender/algorithm is like that", o.only)
	}
	s := settings{duration: o.duration, callers: o.callers, part: 1}
	switch s.redis, err = startRedis(); {
	case err == nil:
		defer func() { err = errors.Join(err, s.redis.end()) }()
	case !errors.Is(err, errNoRedis):
		return err
	}
	if slices.ContainsFunc(cells, func(c cell) bool { return c.contender.elsewhere }) {
		var remove func() error
		s.gubernator, remove, s.noGubernator = buildGubernator(ctx, errOut)
		defer func() { err = errors.Join(err, remove()) }()
	}
	rows, err := measure(ctx, cells, o.count, s, errOut)
	if err != nil {
		return err
	}
	e, err := environmentOf(s)
	if err != nil {
		return err
	}
	e.Duration, e.Count, e.Callers = o.duration.String(), o.count, o.callers
	switch {
	case o.json:
		return printJSON(out, e, rows)
	case o.markdown:
		return printMarkdown(out, e, rows)
	}
	return printTable(out, e, rows)
}

// left estimates how long the rest takes of so many measurements of which some are done, by how
// long these took.
func left(took time.Duration, done, all int) time.Duration {
	return (took * time.Duration(all-done) / time.Duration(done)).Round(time.Second)
}

// measure has the cells take turns, so often. Those of a workload follow one another,
// as they are compared; the first comes later in the next round. After each it writes how far it
// is, and how long the rest takes.
func measure(ctx context.Context, cells []cell, rounds int, s settings, progress io.Writer) ([]row, error) {
	rows := make([]row, len(cells))
	runs := make([][]result, len(cells))
	begun, done, all := time.Now(), 0, 0
	for _, c := range cells {
		if s.missing(c.contender) == nil {
			all += rounds
		}
	}
	fmt.Fprintf(progress, "%d contenders and workloads, measured %d times in all\n", len(cells), all)
	for round := range rounds {
		for begin := 0; begin < len(cells); {
			end := begin + 1
			for end < len(cells) && cells[end].workload.Name == cells[begin].workload.Name {
				end++
			}
			for n := range end - begin {
				i := begin + (n+round)%(end-begin)
				c := cells[i]
				rows[i].cell = c
				if err := s.missing(c.contender); err != nil {
					rows[i].missing = err.Error()
					continue
				}
				if err := ctx.Err(); err != nil {
					return nil, fmt.Errorf("bench: stopped before %v: %w", c, err)
				}
				f, err := c.measure(s)
				if err != nil {
					return nil, err
				}
				runs[i] = append(runs[i], f)
				done++
				fmt.Fprintf(progress, "%d of %d, %v left  %v: %.0f checks/s\n", done, all, left(time.Since(begun), done, all), c, f.Checks)
			}
			begin = end
		}
	}
	for i := range rows {
		if rows[i].missing == "" {
			rows[i].result = combine(runs[i])
		}
	}
	return rows, nil
}
