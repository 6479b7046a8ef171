package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
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
	Steady        map[weir.PartitionPolicy]steady
	Allowed       allowed
}

// work plays the scenarios whose seeds come in, a line each, and sends a line of
// JSON for each.
func work(t *testing.T, in io.Reader, out io.Writer) {
	signal.Ignore(os.Interrupt) // which a terminal sends to all; who started this ends it
	told, tells := bufio.NewScanner(in), json.NewEncoder(out)
	for told.Scan() {
		text, planet := strings.CutPrefix(told.Text(), ofRegions)
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return
		}
		s := drawn(seed, planet)
		if tells.Encode(try(t, s)) != nil {
			return
		}
	}
}

// ofRegions precedes the seeds of scenarios of regions.
const ofRegions = "regions "

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
	judged := newTrial(j)
	r.Checks, r.Broken, r.Steady, r.Allowed = len(j.Checks), judged.judge(), judged.steadySplits(), j.allowed()
	return r
}

// worker is a process that works.
type worker struct {
	process *exec.Cmd
	seeds   io.WriteCloser
	results *bufio.Reader
	says    *head
}

func startWorker() (*worker, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &worker{process: exec.Command(path), says: new(head)}
	w.process.Env = append(os.Environ(), workerEnv+"=1")
	w.process.Stderr = w.says
	if w.seeds, err = w.process.StdinPipe(); err != nil {
		return nil, err
	}
	results, err := w.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.results = bufio.NewReader(results)
	return w, w.process.Start()
}

// play has a scenario played. The error is what a process said that ended of it.
func (w *worker) play(seed uint64, planet bool) (r result, err error) {
	of := ""
	if planet {
		of = ofRegions
	}
	if _, err = fmt.Fprintf(w.seeds, "%s%d\n", of, seed); err == nil {
		var line []byte
		if line, err = w.results.ReadBytes('\n'); err == nil {
			return r, json.Unmarshal(line, &r)
		}
	}
	_ = w.process.Wait() // so that all it said is here
	return r, fmt.Errorf("the process that played it ended: %s", w.says)
}

// stop ends the process at once.
func (w *worker) stop() {
	_ = w.seeds.Close()
	_ = w.process.Process.Kill()
	_ = w.process.Wait()
}

// head keeps the beginning of what is written to it, where a panic says what it is.
type head struct{ b bytes.Buffer }

func (t *head) Write(b []byte) (int, error) {
	t.b.Write(b[:min(len(b), max(0, 1000-t.b.Len()))])
	return len(b), nil
}

func (t *head) String() string { return strings.TrimSpace(t.b.String()) }
