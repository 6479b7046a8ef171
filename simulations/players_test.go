package main

import (
	"encoding/gob"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// playerEnv is set in a process of the test binary that plays scenarios for the tests.
// A run that replays needs its process to itself and uses one core of it, so that the tests
// use all cores only through several processes.
const playerEnv = "WEIR_SIMULATIONS_PLAYER"

// player is such a process. It is sent scenarios and sends back what came of them.
type player struct {
	process   *exec.Cmd
	in        io.Closer
	scenarios *gob.Encoder
	journals  *gob.Decoder
	says      *head
}

// played is what a player sends back: Failed if the scenario cannot be played.
type played struct {
	Journal *Journal
	Failed  string
}

// failure replaces an error whose type gob does not know.
type failure string

func replaceError(err *error) {
	if *err != nil {
		*err = failure((*err).Error())
	}
}

func (f failure) Error() string { return string(f) }

func init() { gob.Register(failure("")) }

// idle has an element for each core: a player that waits for a scenario, or nil for one
// that has not been started.
var idle = make(chan *player, runtime.NumCPU())

func init() {
	for range cap(idle) {
		idle <- nil
	}
}

// playFor plays the scenarios that come in until there are no more.
func playFor(t *testing.T, in io.Reader, out io.Writer) {
	scenarios, journals := gob.NewDecoder(in), gob.NewEncoder(out)
	for {
		var s Scenario
		if scenarios.Decode(&s) != nil {
			return
		}
		stuck := time.AfterFunc(stuckAfter, func() {
			panic(fmt.Sprintf("%s, seed %d: it has been played for %v", s.Name, s.Seed, stuckAfter))
		})
		var p played
		j, err := run(t, &s)
		stuck.Stop()
		if err != nil {
			p.Failed = err.Error()
		} else {
			p.Journal, j.Scenario = j, nil // the test has the scenario
			for i := range j.Checks {
				replaceError(&j.Checks[i].Err)
			}
			for i := range j.Holds {
				replaceError(&j.Holds[i].Wrong)
			}
			for i := range j.Probes {
				replaceError(&j.Probes[i].Err)
			}
		}
		if journals.Encode(p) != nil {
			return
		}
	}
}

func startPlayer() (*player, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &player{process: exec.Command(path), says: new(head)}
	p.process.Env = append(os.Environ(), playerEnv+"=1")
	p.process.Stderr = p.says
	in, err := p.process.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.scenarios, p.journals = in, gob.NewEncoder(in), gob.NewDecoder(out)
	return p, p.process.Start()
}

func (p *player) play(s *Scenario) (answer played, err error) {
	if err = p.scenarios.Encode(s); err == nil {
		err = p.journals.Decode(&answer)
	}
	if err != nil {
		p.stop()
		return answer, fmt.Errorf("%s, seed %d: the process that played it ended (%w): %s", s.Name, s.Seed, err, p.says)
	}
	return answer, nil
}

// stop ends the process and waits until it has ended.
func (p *player) stop() {
	_ = p.in.Close()
	_ = p.process.Wait()
}

// playAside has another process play the scenario. Tests that call it are parallel, so that each
// core plays one.
func playAside(t *testing.T, s *Scenario) *Journal {
	t.Helper()
	p := <-idle
	defer func() { idle <- p }()
	if p == nil {
		var err error
		p, err = startPlayer()
		require.NoError(t, err)
	}
	answer, err := p.play(s)
	if err != nil {
		p = nil
	}
	require.NoError(t, err)
	require.Empty(t, answer.Failed)
	answer.Journal.Scenario = s
	return answer.Journal
}

// dismiss ends all players.
func dismiss() {
	for range cap(idle) {
		if p := <-idle; p != nil {
			p.stop()
		}
	}
}

func TestPlayersPlayWhatThisProcessDoes(t *testing.T) {
	s := scene(2, Fault{At: 2 * time.Second, Kind: FaultSkew, Nodes: []string{"b"}, By: -time.Second})
	s.Lasts = 5 * time.Second
	want, err := run(t, s)
	require.NoError(t, err)
	requireReplays(t, s, want)
	require.Equal(t, want.Scenario, playAside(t, s).Scenario)

	impossible := s.clone()
	impossible.Limits[0].Rate = 0
	p, err := startPlayer()
	require.NoError(t, err)
	answer, err := p.play(impossible)
	require.NoError(t, err)
	require.Contains(t, answer.Failed, "Rate is 0")
	require.NoError(t, p.process.Process.Kill())
	_, err = p.play(s)
	require.ErrorContains(t, err, "the process that played it ended")
}

// requireReplays requires that s plays as it did in first. The runtime preempts a goroutine
// after 10 ms of wall time, so a run differs in which the system gave its core to another
// process for as long: of twenty, two are alike.
func requireReplays(t *testing.T, s *Scenario, first *Journal) {
	t.Helper()
	runs := []*Journal{first}
	var differs string
	for range 19 {
		again := playAside(t, s)
		for _, before := range runs {
			if differs = difference(before, again); differs == "" {
				return
			}
		}
		runs = append(runs, again)
	}
	require.Empty(t, differs, "of twenty runs no two are alike")
}

// difference returns what differs between two runs, or nothing.
func difference(a, b *Journal) string {
	if len(a.Checks) != len(b.Checks) {
		return fmt.Sprintf("%d checks and %d", len(a.Checks), len(b.Checks))
	}
	for i := range a.Checks {
		if a.Checks[i] != b.Checks[i] {
			return fmt.Sprintf("check %d: %+v and %+v", i, a.Checks[i], b.Checks[i])
		}
	}
	for name, same := range map[string]bool{
		"ends": reflect.DeepEqual(a.Ends, b.Ends), "looks": reflect.DeepEqual(a.Looks, b.Looks), "bytes between regions": reflect.DeepEqual(a.WAN, b.WAN),
		"holds": reflect.DeepEqual(a.Holds, b.Holds), "what was held at the end": reflect.DeepEqual(a.Probes, b.Probes),
		"reservations": reflect.DeepEqual(a.Reserved, b.Reserved), "what was spent of them": reflect.DeepEqual(a.Spends, b.Spends),
		"absences": reflect.DeepEqual(a.Absences, b.Absences), "what did not settle": reflect.DeepEqual(a.Unsettled, b.Unsettled),
	} {
		if !same {
			return name
		}
	}
	return ""
}
