package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/full"
	"github.com/weir-go/weir/weirtest"
)

var deploys = flag.Int("deploys", 0, "play so many deploys, joins and leaves; as many as the run has by itself if 0")

const (
	deployRate  = 10 // units of a key, which last for the whole run
	deployKeys  = 60 // fresh ones for each change, of all algorithms in turn
	deployAsks  = 3 * deployRate
	deployEvery = 80 * time.Millisecond // each key is asked for
	// deploysOfOne is how many one cluster has: a node that starts is sent all counts of before.
	deploysOfOne = 50
	fewestNodes  = 3
	mostNodes    = 7
)

// deployed is what was admitted of a key while the nodes changed.
type deployed struct {
	change    string
	key       string
	algorithm weir.Algorithm
	admitted  int64
	unheard   int64 // checks whose node closed before it answered: these may have spent, too
}

// inDeploys has nodes come, go and be replaced, one or two at a time, while all are
// asked for keys whose limits are used up meanwhile. Each is asked until it has left.
func inDeploys(t *testing.T, changes int, seed uint64) (all []deployed) {
	synctest.Test(t, func(t *testing.T) {
		names := []string{"a", "b", "c", "d", "e"}
		c, err := weirtest.NewCluster(t.Context(), weirtest.Options{
			Nodes: names, Seed: seed, Link: weirtest.Link{Latency: 500 * time.Microsecond, Jitter: 200 * time.Microsecond},
			Config: weir.Config{Logger: slog.New(slog.DiscardHandler)},
		})
		require.NoError(t, err)
		defer c.Close()
		rng := rand.New(rand.NewPCG(seed, 1))
		for change := range changes {
			names = c.Names()
			what := []string{"deploy", "join", "leave"}[rng.IntN(3)]
			n := 1 + rng.IntN(2)
			switch {
			case what == "join" && len(names)+n > mostNodes:
				what = "deploy"
			case what == "leave" && len(names)-n < fewestNodes:
				what = "join"
			}
			rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			fresh := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}
			fresh = slices.DeleteFunc(fresh, func(name string) bool { return slices.Contains(names, name) })
			asked := askAll(t, c, change)
			time.Sleep(time.Duration(200+rng.IntN(400)) * time.Millisecond)
			var moving sync.WaitGroup
			for i, name := range names[:n] {
				moving.Go(func() {
					if what != "join" {
						if err := c.Leave(t.Context(), name); err != nil {
							t.Errorf("%s of %s: %v", what, name, err)
						}
					}
					if what != "leave" {
						if _, err := c.Start(t.Context(), fresh[i]); err != nil {
							t.Errorf("%s of %s: %v", what, fresh[i], err)
						}
					}
				})
			}
			moving.Wait()
			for _, d := range asked() {
				d.change = fmt.Sprintf("%s of %d, of %d", what, n, len(names))
				all = append(all, d)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			require.NoError(t, c.Await(ctx, c.Settled), "after change %d", change)
			cancel()
		}
	})
	return all
}

// askAll asks for fresh keys from now on, from one node after the other, and says in
// the end what was admitted.
func askAll(t *testing.T, c *weirtest.Cluster, change int) func() []deployed {
	all := make([]deployed, deployKeys)
	var asking sync.WaitGroup
	for k := range all {
		d := &all[k]
		d.key, d.algorithm = fmt.Sprintf("%d %d", change, k), weir.Algorithm(k%5)
		l := weir.Limit{Name: fmt.Sprint("of ", d.algorithm), Algorithm: d.algorithm, Rate: deployRate, Per: 366 * 24 * time.Hour}
		asking.Go(func() {
			time.Sleep(time.Duration(k) * deployEvery / deployKeys)
			for i := range deployAsks {
				names := c.Names()
				if n := c.Node(names[(i+k)%len(names)]); n != nil {
					limiter, err := n.Limiter(l)
					if err != nil {
						continue // it has just closed
					}
					switch answer, err := limiter.Allow(t.Context(), d.key); {
					case err != nil:
						d.unheard++
					case answer.Allowed:
						d.admitted++
					}
				}
				time.Sleep(deployEvery)
			}
		})
	}
	return func() []deployed {
		asking.Wait()
		return all
	}
}

// Run it with -deploys 1000 for the figure of docs/guarantees.md.
func TestADeployAJoinOrALeaveAdmitsAtMostOneUnitTooMany(t *testing.T) {
	t.Parallel()
	changes := *deploys
	if changes == 0 {
		changes = full.Pick(t, 6, 40)
	}
	var all []deployed
	for seed := uint64(1); changes > len(all)/deployKeys; seed++ {
		all = append(all, inDeploys(t, min(deploysOfOne, changes-len(all)/deployKeys), seed)...)
	}
	more, fewer := 0, 0
	for _, d := range all {
		if d.admitted > deployRate {
			more++
		}
		if d.admitted+d.unheard < deployRate {
			fewer++ // the answer was under way to whoever asked as the node closed that gave it
		}
		if d.admitted > deployRate+1 || d.admitted+d.unheard < deployRate-1 {
			t.Errorf("%s: key %q under %v: %d of %d admitted, and %d checks unanswered", d.change, d.key, d.algorithm, d.admitted, deployRate, d.unheard)
		}
	}
	most := slices.MaxFunc(all, func(a, b deployed) int { return cmp.Compare(a.admitted, b.admitted) })
	t.Logf("%d changes, %d keys: %d with a unit too many, %d with one too few; the most is %d of %d, in a %s", changes, len(all), more, fewer, most.admitted, deployRate, most.change)
}
