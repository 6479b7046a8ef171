package main

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"testing"
	"time"
)

// workerEnv is set in a process that plays the scenarios that it is sent. A run that replays needs
// its process to itself, and uses one core of it.
const workerEnv = "WEIR_SIMULATIONS_WORKER"

const stuckAfter = 10 * time.Minute // of real time, in one run

// played is the answer of a worker: a journal without its scenario, or why there is none.
type played struct {
	Journal *Journal
	Failed  string
}

// work plays the scenarios that arrive, until there are no more.
func work(t *testing.T, in io.Reader, out io.Writer) {
	signal.Ignore(os.Interrupt) // which a terminal sends to all; the process that started this ends it
	scenarios, journals := gob.NewDecoder(in), gob.NewEncoder(out)
	for {
		s := new(Scenario)
		if scenarios.Decode(s) != nil {
			return
		}
		stuck := time.AfterFunc(stuckAfter, func() {
			panic(fmt.Sprintf("%s, seed %d: it has been played for %v", s.Name, s.Seed, stuckAfter))
		})
		j, err := run(t, s)
		stuck.Stop()
		p := played{Journal: j}
		if err != nil {
			p.Failed = err.Error()
		} else {
			j.Scenario = nil
		}
		if journals.Encode(p) != nil {
			return
		}
	}
}

// worker is a process that works.
type worker struct {
	process   *exec.Cmd
	in        io.Closer
	scenarios *gob.Encoder
	journals  *gob.Decoder
	says      head
}

func startWorker() (*worker, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &worker{process: exec.Command(program)}
	w.process.Env, w.process.Stderr = append(os.Environ(), workerEnv+"=1"), &w.says
	in, err := w.process.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := w.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.in, w.scenarios, w.journals = in, gob.NewEncoder(in), gob.NewDecoder(out)
	return w, w.process.Start()
}

// play has a scenario played. After an error the process has ended, and the error has its words.
func (w *worker) play(s *Scenario) (*Journal, error) {
	var p played
	err := w.scenarios.Encode(s)
	if err == nil {
		err = w.journals.Decode(&p)
	}
	if err != nil {
		w.stop()
		return nil, fmt.Errorf("the process that played it ended (%w): %s", err, strings.TrimSpace(w.says.String()))
	}
	if p.Failed != "" {
		return nil, fmt.Errorf("%w: %s", errUnplayable, p.Failed)
	}
	p.Journal.Scenario = s
	return p.Journal, nil
}

// stop ends the process.
func (w *worker) stop() {
	_ = w.in.Close()
	_ = w.process.Process.Kill()
	_ = w.process.Wait()
}

// head keeps the beginning of what is written to it, where a panic states its reason.
type head struct{ bytes.Buffer }

func (t *head) Write(b []byte) (int, error) {
	t.Buffer.Write(b[:min(len(b), max(0, 1000-t.Len()))])
	return len(b), nil
}
