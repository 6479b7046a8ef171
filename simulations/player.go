package main

import (
	"errors"
	"fmt"
	"net/rpc"
	"os"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

// playerEnv is set in a process that plays scenarios for another process. A run that
// replays needs its own process, and uses a single core.
const playerEnv = "WEIR_SIMULATIONS_PLAYER"

const (
	stuckAfter = 10 * time.Minute // real time after which a run counts as stuck
	endWait    = time.Minute      // maximum time for the process to end
)

// Player is the RPC service of a process with playerEnv.
type Player struct{ t *testing.T }

// Play plays s, and sets j to the journal of the run, without the Scenario.
func (p Player) Play(s *Scenario, j *Journal) error {
	stuck := time.AfterFunc(stuckAfter, func() {
		panic(fmt.Sprintf("%s, seed %d: the run has taken %v", s.Name, s.Seed, stuckAfter))
	})
	defer stuck.Stop()
	played, err := run(p.t, s)
	if err != nil {
		return err
	}
	*j = *played
	j.Scenario = nil
	return nil
}

func startPlayer() (*lab.Service, error) {
	cmd, err := lab.Self(playerEnv + "=1")
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	return lab.StartService(cmd)
}

// playIn plays a scenario in another process. After any error except errUnplayable, that
// process has ended.
func playIn(player *lab.Service, s *Scenario) (*Journal, error) {
	j := new(Journal)
	err := player.Call("Player.Play", s, j)
	var refusal rpc.ServerError
	switch {
	case errors.As(err, &refusal):
		return nil, fmt.Errorf("%w: %w", errUnplayable, err)
	case err != nil:
		return nil, fmt.Errorf("the process that played the scenario ended: %w", err)
	}
	j.Scenario = s
	return j, nil
}
