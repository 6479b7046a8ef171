package main

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The processors that rounds give to each test process, in turn.
var processors = []int{1, 2, 4}

// roundTimeout bounds a package's run in one round.
const roundTimeout = 30 * time.Minute

// flakes builds the tests of the packages once, and runs them round after round: in an
// order of their own each round, with 1, 2 and 4 processors in turn, while busy loops run, one
// on each core by default. It prints each test that failed, how often, and its last output.
func flakes(ctx context.Context, args []string, _ io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("flakes", flag.ContinueOnError)
	rounds := flags.Int("n", 20, "")
	race := flags.Int("race", 5, "")
	busyLoops := flags.Int("busy", runtime.NumCPU(), "")
	pattern := flags.String("run", "", "")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *rounds < 1 || *race < 0 {
		return usageError("give -n of 1 or more rounds, and -race of 0 for none, or 5 for each fifth round")
	}
	packages, err := testPackages(ctx, flags.Args())
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "suite")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	kinds := []bool{false}
	if *race > 0 && *rounds >= *race {
		kinds = append(kinds, true)
	}
	for _, detector := range kinds {
		for i := range packages {
			if err := packages[i].build(ctx, dir, detector); err != nil {
				return err
			}
		}
	}

	busy, rest := context.WithCancel(ctx)
	defer rest()
	for range *busyLoops {
		go func() {
			for busy.Err() == nil {
			}
		}()
	}
	found := newFindings()
	for round := range *rounds {
		detector := *race > 0 && (round+1)%*race == 0
		began := time.Now()
		failed := runRound(ctx, packages, detector, round, *pattern, found)
		if ctx.Err() != nil {
			break
		}
		fmt.Fprintf(out, "round %d of %d, %d processors%s: %d failures, %.0f s\n", round+1, *rounds,
			processors[round%len(processors)], map[bool]string{true: ", race detector"}[detector], failed, time.Since(began).Seconds())
	}
	found.print(out)
	if found.failures() > 0 {
		return errFailed
	}
	return ctx.Err()
}

func (p *testPackage) build(ctx context.Context, dir string, detector bool) error {
	args := []string{"test", "-c", "-o", filepath.Join(dir, strings.ReplaceAll(p.path, "/", "_")+".test")}
	if detector {
		if !p.races() {
			return nil
		}
		args[3] += ".race"
		args = append(args, "-race")
	}
	c := exec.CommandContext(ctx, "go", append(args, ".")...)
	c.Dir = p.dir
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", p.path, err, text)
	}
	if detector {
		p.raced = args[3]
	} else {
		p.plain = args[3]
	}
	return nil
}

// runRound runs all packages, as many at once as there are cores, and returns how many
// tests failed.
func runRound(ctx context.Context, packages []testPackage, detector bool, round int, pattern string, found *findings) (failed int) {
	slots := make(chan struct{}, runtime.NumCPU())
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, p := range packages {
		program := p.plain
		if detector {
			program = p.raced
		}
		if program == "" {
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			ended := p.run(ctx, program, processors[round%len(processors)], pattern)
			if ctx.Err() != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			failed += found.add(ended)
		})
	}
	all.Wait()
	return failed
}

// run plays a package's tests once, and returns how each ended.
func (p testPackage) run(ctx context.Context, program string, procs int, pattern string) (ended []result) {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout+time.Minute)
	defer cancel()
	args := []string{"-test.v=test2json", "-test.shuffle=on", "-test.timeout=" + roundTimeout.String()}
	if pattern != "" {
		args = append(args, "-test.run="+pattern)
	}
	// The program is a child of this process, not of test2json, so that it ends with ctx.
	tests := exec.CommandContext(ctx, program, args...)
	tests.Dir, tests.Env = p.dir, append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(procs))
	tests.WaitDelay = 10 * time.Second // a process that it left behind is a failure, and no wait
	events := exec.CommandContext(ctx, "go", "tool", "test2json", "-t", "-p", p.path)
	var text bytes.Buffer
	events.Stdout, events.Stderr = &text, &text
	written, err := events.StdinPipe()
	if err != nil {
		return p.failed(err.Error())
	}
	tests.Stdout, tests.Stderr = written, written
	if err := events.Start(); err != nil {
		return p.failed(err.Error())
	}
	failure := tests.Run()
	_ = written.Close() // which ends the events
	if err := events.Wait(); err != nil {
		return p.failed(err.Error() + "\n" + text.String())
	}
	_ = results(&text, p.path, func(r result) { ended = append(ended, r) }) // it reads from memory
	if failure != nil && !slices.ContainsFunc(ended, func(r result) bool { return r.action == "fail" }) {
		ended = append(ended, p.failed(failure.Error())...)
	}
	return ended
}

// failed is the failure of the whole package, without that of a test.
func (p testPackage) failed(how string) []result {
	return []result{{name: name{p.path, ""}, action: "fail", output: how + "\n"}}
}

// findings is how often each test ran and failed. It is not safe for concurrent use.
type findings struct {
	ran, failed map[name]int
	last        map[name]string // its last failed output
}

func newFindings() *findings {
	return &findings{make(map[name]int), make(map[name]int), make(map[name]string)}
}

// add adds one run of a package, and returns how many tests of it failed, without the
// parents of those that did.
func (f *findings) add(run []result) (failed int) {
	wrong := make(map[name]bool)
	for _, r := range run {
		if r.action != "skip" {
			f.ran[r.name]++
		}
		if r.action == "fail" {
			wrong[r.name] = true
		}
	}
	for _, r := range run {
		if wrong[r.name] && innermost(r.name, wrong) {
			f.failed[r.name]++
			f.last[r.name] = r.output
			failed++
		}
	}
	return failed
}

func (f *findings) failures() (sum int) {
	for _, n := range f.failed {
		sum += n
	}
	return sum
}

// print prints what failed, the most frequent last, where a terminal shows it.
func (f *findings) print(out io.Writer) {
	var names []name
	for n := range f.failed {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b name) int {
		return cmp.Or(cmp.Compare(f.failed[a], f.failed[b]), strings.Compare(a.String(), b.String()))
	})
	for _, n := range names {
		fmt.Fprintf(out, "\n%v failed in %d of %d runs; its last output:\n%s", n, f.failed[n], f.ran[n], f.last[n])
	}
	tests := 0
	for n, times := range f.ran {
		if n.Test != "" {
			tests += times
		}
	}
	fmt.Fprintf(out, "\n%d tests ran, counting each run; %d failed\n", tests, f.failures())
}
