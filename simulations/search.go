package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

const (
	enoughFound = 10               // number of broken scenarios that end the search; the first is shrunk
	shrinkFor   = 10 * time.Minute // maximum time for which the first is shrunk
)

// unplayed is the invariant of a scenario that cannot be played, or whose process ended
// before the scenario.
const unplayed = "played"

// errUnplayable means that a scenario cannot be played, and that its process continues.
var errUnplayable = errors.New("the scenario cannot be played")

// result is the outcome of a random scenario.
type result struct {
	scenario *Scenario
	checks   int
	broken   []Broken
}

// searching is the state of a search for scenarios that break an invariant.
type searching struct {
	ctx context.Context
	options
	out io.Writer

	mu      sync.Mutex // guards the fields below
	begun   int
	played  int
	faults  int
	checks  int
	virtual time.Duration
	found   []result
}

// search plays random scenarios in a process for each core, and shrinks the first
// scenario that breaks an invariant.
func search(ctx context.Context, t *testing.T, o options, out, complain io.Writer) int {
	begun := time.Now()
	f := &searching{ctx: ctx, options: o, out: out}
	fmt.Fprintf(out, "random scenarios, the first with seed %d\n", o.seed)
	errs := make(chan error, runtime.NumCPU())
	for range cap(errs) {
		go func() { errs <- f.runPlayer() }()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			fmt.Fprintf(complain, "simulations: %v\n", err)
			return exitBroken
		}
	}
	fmt.Fprintf(out, "%d scenarios, %d faults, %d checks, %v of virtual time in %v: ",
		f.played, f.faults, f.checks, f.virtual, time.Since(begun).Round(time.Second))
	if len(f.found) == 0 {
		fmt.Fprintln(out, "no invariant broken")
		if ctx.Err() != nil {
			return exitInterrupted
		}
		return exitFine
	}
	fmt.Fprintf(out, "%d break an invariant\n", len(f.found))
	for _, r := range f.found {
		of := map[bool]string{true: "-regions "}[f.regions]
		fmt.Fprintf(complain, "\nseed %d. %s: %s %s-n 1 -seed %d\n", r.scenario.Seed, r.scenario.replayHint(), command(), of, r.scenario.Seed)
		r.broken[0].print(complain)
	}
	if ctx.Err() == nil {
		f.simplify(t, f.found[0], complain)
	}
	return exitBroken
}

// runPlayer plays scenarios in another process until there are enough. If a scenario ends
// the process, runPlayer starts another process.
func (f *searching) runPlayer() (err error) {
	var player *lab.Service
	for seed, more := f.nextSeed(); more; seed, more = f.nextSeed() {
		if player == nil {
			if player, err = startPlayer(); err != nil {
				return err
			}
		}
		draw := randomScenario
		if f.regions {
			draw = randomPlanet
		}
		s := draw(seed)
		interrupted := context.AfterFunc(f.ctx, func() { _ = player.Kill() })
		j, err := playIn(player, s)
		interrupted()
		switch {
		case f.ctx.Err() != nil:
		case err == nil:
			f.record(result{s, len(j.Checks), judge(j)})
			continue
		default:
			f.record(result{scenario: s, broken: []Broken{{Invariant: unplayed, Finding: err.Error()}}})
		}
		if !errors.Is(err, errUnplayable) {
			_ = player.End(endWait)
			player = nil
		}
	}
	if player != nil {
		return player.End(endWait)
	}
	return nil
}

func (f *searching) nextSeed() (seed uint64, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil || len(f.found) >= enoughFound || f.begun >= f.count {
		return 0, false
	}
	for f.stops && randomScenario(f.seed).Snapshots == 0 {
		f.seed++
	}
	f.begun++
	f.seed++
	return f.seed - 1, true
}

func (f *searching) record(r result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, verdict := r.scenario, "✓"
	f.played++
	f.faults += len(s.Faults)
	f.checks += r.checks
	f.virtual += s.Lasts
	if len(r.broken) > 0 {
		verdict = "✗ " + r.broken[0].Invariant
		f.found = append(f.found, r)
	}
	fmt.Fprintf(f.out, "seed %d: %d nodes, %d faults, %v %s\n", s.Seed, len(s.Nodes), len(s.Faults), s.Lasts, verdict)
}

// simplify shrinks a scenario to a small scenario that breaks the same invariant, and
// writes the small scenario to a file.
func (f *searching) simplify(t *testing.T, found result, complain io.Writer) {
	wanted := found.broken[0]
	if wanted.Invariant == unplayed {
		return // the scenario would end this process too
	}
	fmt.Fprintf(complain, "\nseed %d is being simplified\n", found.scenario.Seed)
	ends := time.Now().Add(shrinkFor)
	least := shrink(found.scenario, func(s *Scenario) bool {
		if f.ctx.Err() != nil || time.Now().After(ends) {
			return false
		}
		j, err := run(t, s)
		if err != nil {
			return false
		}
		for _, b := range judge(j) {
			if b.Invariant == wanted.Invariant {
				wanted = b
				return true
			}
		}
		return false
	})
	name := least.Name + ".yaml"
	if err := os.WriteFile(name, least.yaml(), 0o666); err != nil {
		fmt.Fprintf(complain, "%v; it is:\n%s", err, least.yaml())
		return
	}
	wanted.print(complain)
	fmt.Fprintf(complain, "It is in %s. %s: %s %s\n", name, least.replayHint(), command(), name)
}
