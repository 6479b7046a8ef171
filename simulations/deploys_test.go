package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/weirtest"
)

var deploys = flag.Int("deploys", 0, "play this `number` of deploys, joins and leaves; if 0, the default of the run")

const (
	deployRate  = 10
	deployKeys  = 12 // new keys of each limit
	deployTakes = 10 * time.Second
	// deploysOfOne is the maximum number of changes of one cluster: a node that starts
	// receives all earlier counts.
	deploysOfOne = 25
	fewestNodes  = 3
	mostNodes    = 7
)

// deploysOf returns a scenario in which nodes start, leave and are replaced, one or two
// at a time, while all receive checks for keys whose limits are used up meanwhile. It
// also returns a description of each change.
func deploysOf(changes int, seed uint64) (s *Scenario, what []string) {
	s = &Scenario{
		Name: "deploys", Seed: seed, Lasts: time.Duration(changes+1) * deployTakes,
		Network: weirtest.Link{Latency: 500 * time.Microsecond, Jitter: 200 * time.Microsecond},
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	running, fresh := []string{"a", "b", "c", "d", "e"}, []string{"f", "g", "h", "i"}
	for i, name := range append(running[:5:5], fresh...) {
		s.Nodes = append(s.Nodes, Node{Name: name, Later: i >= len(running)})
	}
	for change := range changes {
		kind, n := []string{"deploy", "join", "leave"}[rng.IntN(3)], 1+rng.IntN(2)
		switch {
		case kind == "join" && len(running)+n > mostNodes:
			kind = "deploy"
		case kind == "leave" && len(running)-n < fewestNodes:
			kind = "join"
		}
		what = append(what, fmt.Sprintf("%s of %d, of %d", kind, n, len(running)))
		rng.Shuffle(len(running), func(i, j int) { running[i], running[j] = running[j], running[i] })
		begins := time.Duration(change) * deployTakes
		at := begins + time.Duration(200+rng.IntN(400))*time.Millisecond
		if kind != "join" {
			s.Faults = append(s.Faults, Fault{At: at, Kind: FaultLeave, Nodes: append([]string(nil), running[:n]...)})
			running, fresh = running[n:], append(fresh, running[:n]...)
		}
		if kind != "leave" {
			s.Faults = append(s.Faults, Fault{At: at + time.Second, Kind: FaultStart, Nodes: append([]string(nil), fresh[:n]...)})
			running, fresh = append(running[:len(running):len(running)], fresh[:n]...), fresh[n:]
		}
		for algorithm := weir.SlidingWindow; algorithm <= weir.LeakyBucket; algorithm++ {
			l := weir.Limit{Name: fmt.Sprint(change, " ", algorithm), Algorithm: algorithm, Rate: deployRate, Per: 366 * 24 * time.Hour}
			s.Limits = append(s.Limits, l)
			s.Loads = append(s.Loads, Load{Limit: l.Name, Keys: deployKeys, Rate: 200, Begins: begins, Ends: begins + 3*time.Second})
		}
	}
	return s, what
}

// Run it with -deploys 1000 for the figure of docs/guarantees.md.
func TestDeployAdmitsAtMostOneUnitTooMany(t *testing.T) {
	t.Parallel()
	left := *deploys
	if left == 0 {
		left = testenv.PickFull(t, 6, 40)
	}
	keys, more, fewer := 0, 0, 0
	for seed := uint64(1); left > 0; seed++ {
		s, what := deploysOf(min(left, deploysOfOne), seed)
		left -= len(what)
		j := playAside(t, s)
		require.Empty(t, judge(j), "seed %d", seed)
		admitted := make(map[subject]int64)
		for _, c := range j.Checks {
			if c.Limit != witness && c.Allowed {
				admitted[subject{limit: c.Limit, key: c.Key}] += c.Units
			}
		}
		require.Len(t, admitted, len(s.Limits)*deployKeys)
		for of, units := range admitted {
			keys++
			switch {
			case units > deployRate:
				more++
			case units < deployRate:
				fewer++ // the owner closed before the answer reached the caller
			}
			if units > deployRate+1 || units < deployRate-1 {
				t.Errorf("seed %d, %s: key %d of limit %q: %d of %d admitted", seed, what[int(of.limit)/5], of.key, s.Limits[of.limit].Name, units, deployRate)
			}
		}
	}
	t.Logf("%d keys: %d with a unit too many, %d with one too few", keys, more, fewer)
}
