package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"testing"
	"time"
)

const (
	enoughFound = 10               // broken scenarios; one of them is shrunk
	stuckAfter  = 10 * time.Minute // of real time, in one run
	shrinkFor   = 10 * time.Minute
)

// searching is a search for a scenario that breaks an invariant.
type searching struct {
	ctx     context.Context
	until   time.Time // the zero time is never
	count   int       // zero is any
	out     io.Writer
	mu      sync.Mutex // guards what follows
	next    uint64     // the seed
	begun   int
	played  int
	found   []finding
	faults  int
	checks  int
	virtual time.Duration
}

// finding is a scenario that broke an invariant.
type finding struct {
	scenario *Scenario
	broken   []Broken
}

// search plays random scenarios, one on each core, and shrinks the first that
// breaks an invariant.
func search(ctx context.Context, t *testing.T, o options, out, complain io.Writer) int {
	begun := time.Now()
	f := &searching{ctx: ctx, count: o.count, out: out, next: o.seed}
	if o.random > 0 {
		f.until = begun.Add(o.random)
	}
	fmt.Fprintf(out, "random scenarios from seed %d on\n", o.seed)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() { t.Run("", f.work) })
	}
	workers.Wait()
	fmt.Fprintf(out, "%d scenarios, %d faults, %d checks, %v of virtual time in %v: ",
		f.played, f.faults, f.checks, f.virtual, time.Since(begun).Round(time.Second))
	if len(f.found) == 0 {
		if ctx.Err() != nil {
			fmt.Fprintln(out, "no invariant broken; interrupted")
			return exitInterrupted
		}
		fmt.Fprintln(out, "no invariant broken")
		return exitFine
	}
	fmt.Fprintf(out, "%d break an invariant\n", len(f.found))
	for _, found := range f.found {
		fmt.Fprintf(complain, "\nseed %d; replay it with: %s -n 1 -seed %d\n", found.scenario.Seed, command(), found.scenario.Seed)
		for _, b := range found.broken[:1] {
			wrap(complain, "✗ "+b.Invariant+" ", "  ", fmt.Sprintf("at %s: %s", short(b.At), b.Says))
		}
	}
	f.simplify(t, f.found[0], complain)
	return exitBroken
}

// work plays scenarios until there are enough.
func (f *searching) work(t *testing.T) {
	for {
		seed, more := f.take()
		if !more {
			return
		}
		s := random(seed)
		j, broken, err := try(t, s)
		f.note(s, j, broken, err)
	}
}

func (f *searching) take() (seed uint64, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.ctx.Err() != nil || len(f.found) >= enoughFound,
		f.count > 0 && f.begun >= f.count,
		!f.until.IsZero() && time.Now().After(f.until):
		return 0, false
	}
	seed = f.next
	f.next++
	f.begun++
	return seed, true
}

func (f *searching) note(s *Scenario, j *Journal, broken []Broken, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.played++
	f.faults += len(s.Faults)
	f.virtual += s.Lasts
	if err != nil {
		broken = append(broken, Broken{Invariant: "played", Says: err.Error()})
	} else {
		f.checks += len(j.Checks)
	}
	verdict := "✓"
	if len(broken) > 0 {
		verdict = "✗ " + broken[0].Invariant
		f.found = append(f.found, finding{s, broken})
	}
	fmt.Fprintf(f.out, "seed %d: %d nodes, %d faults, %v %s\n", s.Seed, len(s.Nodes), len(s.Faults), s.Lasts, verdict)
}

// try plays a scenario and judges it.
func try(t *testing.T, s *Scenario) (*Journal, []Broken, error) {
	stuck := time.AfterFunc(stuckAfter, func() {
		panic(fmt.Sprintf("%s, seed %d: it has been played for %v", s.Name, s.Seed, stuckAfter))
	})
	defer stuck.Stop()
	j, err := run(t, s)
	if err != nil {
		return nil, nil, err
	}
	return j, judge(j), nil
}

// simplify makes of a finding the least scenario that breaks the same invariant,
// and keeps it in a file.
func (f *searching) simplify(t *testing.T, found finding, complain io.Writer) {
	fmt.Fprintf(complain, "\nseed %d is being made simpler\n", found.scenario.Seed)
	ends := time.Now().Add(shrinkFor)
	wanted := found.broken[0].Invariant
	last := found.broken
	least := shrink(found.scenario, func(s *Scenario) bool {
		if f.ctx.Err() != nil || time.Now().After(ends) {
			return false
		}
		_, broken, err := try(t, s)
		if err != nil {
			return wanted == "played"
		}
		for _, b := range broken {
			if b.Invariant == wanted {
				last = broken
				return true
			}
		}
		return false
	})
	name, err := keep(least)
	if err != nil {
		fmt.Fprintf(complain, "%v; it is:\n%s", err, least.yaml())
		return
	}
	wrap(complain, "✗ "+last[0].Invariant+" ", "  ", last[0].Says)
	fmt.Fprintf(complain, "It is in %s. Replay it with: %s %s\n", name, command(), name)
}
