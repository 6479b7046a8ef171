package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

// workerEnv is set in a process that plays the random scenarios whose seeds it
// is told: a run that replays has its process to itself.
const workerEnv = "WEIR_SIMULATIONS_WORKER"

const stuckAfter = 10 * time.Minute // of real time, in one run

// result is what came of a random scenario.
type result struct {
	Seed          uint64
	Nodes, Faults int
	Checks        int
	Lasts         time.Duration
	Broken        []Broken
	Allowed       allowed
}

// order names a random scenario.
type order struct {
	Seed   uint64
	Planet bool // it is of regions
}

// work plays the scenarios that are ordered, a line of JSON each, and sends a line of JSON
// for each.
func work(t *testing.T, in io.Reader, out io.Writer) {
	signal.Ignore(os.Interrupt) // which a terminal sends to all; the process that started this ends it
	told, tells := json.NewDecoder(in), json.NewEncoder(out)
	for o := (order{}); told.Decode(&o) == nil; {
		if tells.Encode(try(t, drawn(o.Seed, o.Planet))) != nil {
			return
		}
	}
}

// drawn is the random scenario of a seed.
func drawn(seed uint64, planet bool) *Scenario {
	if planet {
		return randomPlanet(seed)
	}
	return random(seed)
}

// unplayed is the invariant of a scenario that ends before it is over.
const unplayed = "played"

// try plays a scenario and judges it.
func try(t *testing.T, s *Scenario) result {
	stuck := time.AfterFunc(stuckAfter, func() {
		panic(fmt.Sprintf("%s, seed %d: it has been played for %v", s.Name, s.Seed, stuckAfter))
	})
	defer stuck.Stop()
	r := result{Seed: s.Seed, Nodes: len(s.Nodes), Faults: len(s.Faults), Lasts: s.Lasts}
	j, err := run(t, s)
	if err != nil {
		r.Broken = []Broken{{Invariant: unplayed, Says: err.Error()}}
		return r
	}
	r.Checks, r.Broken, r.Allowed = len(j.Checks), judge(j), j.allowed()
	return r
}

// worker is a process that works.
type worker struct {
	*lab.Child
	results chan result // of the scenario that was ordered
	says    *head
}

func startWorker() (w *worker, err error) {
	w = &worker{results: make(chan result, 1), says: new(head)}
	w.Child, err = lab.Start([]string{workerEnv + "=1"}, w.says, func(line []byte) {
		var r result
		if json.Unmarshal(line, &r) == nil {
			w.results <- r
		}
	})
	return w, err
}

// play has a scenario played. The error is what a process said that ended of it.
func (w *worker) play(seed uint64, planet bool) (result, error) {
	if w.Order(order{seed, planet}) == nil {
		select {
		case r := <-w.results:
			return r, nil
		case <-w.Ended(): // so that all it said is here
		}
	}
	<-w.Ended()
	select {
	case r := <-w.results: // it ended afterwards
		return r, nil
	default:
		return result{}, fmt.Errorf("the process that played it ended: %s", w.says)
	}
}

// stop ends the process at once.
func (w *worker) stop() {
	_ = w.Kill()
	<-w.Ended()
}

// head keeps the beginning of what is written to it, where a panic says what it is.
type head struct{ b bytes.Buffer }

func (t *head) Write(b []byte) (int, error) {
	t.b.Write(b[:min(len(b), max(0, 1000-t.b.Len()))])
	return len(b), nil
}

func (t *head) String() string { return strings.TrimSpace(t.b.String()) }
