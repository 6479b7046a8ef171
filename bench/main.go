package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weir-go/weir/bench/internal/worker"
)

func main() {
	playRole()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type options struct {
	duration time.Duration
	count    int
	callers  int
	only     *regexp.Regexp
	sizing   bool
	keys     int // number of keys for -sizing
}

// maxCallers bounds the number of concurrent callers.
const maxCallers = 10_000

func parse(args []string, errOut io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.DurationVar(&o.duration, "for", 500*time.Millisecond, "the time of each measurement of a contender under a workload")
	flags.IntVar(&o.count, "count", 1, "the number of measurements of each contender under each workload; contenders take turns, and the tables have the medians")
	flags.IntVar(&o.callers, "callers", 64, "the number of callers of a contender that sends checks to another process; other contenders have one caller for each CPU")
	only := flags.String("only", "", "measure the workload/contender pairs that match this `regexp`; all if empty")
	flags.BoolVar(&o.sizing, "sizing", false, "print only the CPU time of a check and the memory of a key, for docs/deploy.md; -for is the time of each measurement")
	flags.IntVar(&o.keys, "keys", worker.Million, "the number of keys for which -sizing measures the memory")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, fmt.Errorf("bench: -only: %w", err)
	}
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("bench: unexpected argument %q: use only flags", flags.Args())
	case o.duration < time.Millisecond || o.duration > time.Hour:
		err = fmt.Errorf("bench: -for is %v: it must be from 1ms to 1h", o.duration)
	case o.count < 1 || o.count > 1000:
		err = fmt.Errorf("bench: -count is %d: it must be from 1 to 1000", o.count)
	case o.keys < 1000 || o.keys > 200*worker.Million:
		err = fmt.Errorf("bench: -keys is %d: it must be from 1000 to 200000000", o.keys)
	case o.callers < 1 || o.callers > maxCallers:
		err = fmt.Errorf("bench: -callers is %d: it must be from 1 to %d", o.callers, maxCallers)
	}
	return o, err
}

// cells returns the chosen cells in the order of the tables. An
// unlisted contender is chosen only if -only contains its name.
func (o *options) cells() (chosen []cell) {
	for _, w := range worker.Workloads(1) {
		for _, c := range contenders() {
			if cell := (cell{w, c}); o.only.MatchString(cell.String()) && (!c.unlisted || strings.Contains(o.only.String(), c.name)) {
				chosen = append(chosen, cell)
			}
		}
	}
	return chosen
}

// run measures the selected cells and prints the tables to the writer out.
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
		return fmt.Errorf("bench: -only is %q: no workload/contender matches it", o.only)
	}
	s := settings{duration: o.duration, callers: o.callers, part: 1}
	switch s.redis, err = startRedis(); {
	case err == nil:
		defer func() { err = errors.Join(err, s.redis.end()) }()
	case !errors.Is(err, errNoRedis):
		return err
	}
	if slices.ContainsFunc(cells, func(c cell) bool { return c.contender.gubernator }) {
		var remove func() error
		s.gubernator, remove, s.noGubernator = buildGubernator(ctx, errOut)
		defer func() { err = errors.Join(err, remove()) }()
	}
	rows, err := measure(ctx, cells, o.count, s, errOut)
	if err != nil {
		return err
	}
	conditions, err := describeRun(o, s)
	if err != nil {
		return err
	}
	return printTables(out, conditions, rows)
}

// measure measures each cell once in each of the given number of rounds, unless its
// contender is missing, and returns a row for each cell. Consecutive rounds begin with
// different cells. After each measurement, measure writes a line to progress.
func measure(ctx context.Context, cells []cell, rounds int, s settings, progress io.Writer) ([]row, error) {
	rows, runs := make([]row, len(cells)), make([][]result, len(cells))
	var present []int
	for i, c := range cells {
		rows[i].cell = c
		if err := s.missing(c.contender); err != nil {
			rows[i].missing = err.Error()
		} else {
			present = append(present, i)
		}
	}
	all := rounds * len(present)
	fmt.Fprintf(progress, "%d pairs of a workload and a contender, %d measurements in total\n", len(cells), all)
	for n := range all {
		i := present[(n+n/len(present))%len(present)]
		c := cells[i]
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("bench: stopped before %v: %w", c, err)
		}
		f, err := c.measure(s)
		if err != nil {
			return nil, err
		}
		runs[i] = append(runs[i], f)
		fmt.Fprintf(progress, "%d of %d  %v: %.0f checks/s\n", n+1, all, c, f.Checks)
	}
	for _, i := range present {
		rows[i].result = combine(runs[i])
	}
	return rows, nil
}
