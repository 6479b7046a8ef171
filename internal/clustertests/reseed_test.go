package clustertests

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/weirtest"
)

// The IDs of counts depend on the Seed, so a new Seed makes a new cluster. To replace a leaked
// Seed, an operator runs a second cluster beside the first, in the same processes. For a while,
// both clusters must admit each check. The procedure is in docs/rotation.md.

const (
	reseedPer   = 15 * time.Second
	reseedRate  = 15
	reseedKeys  = 10
	reseedEvery = 250 * time.Millisecond // between the checks of a key, which are four times its limit
)

// stage is a step of the procedure for a process.
type stage int

const (
	oldAlone stage = iota
	oldFirst       // the old cluster decides, and the new cluster counts the admitted checks
	both           // both clusters must admit a check
	nextAlone
)

// instance is a process of a service, with a node of either cluster or of both clusters.
type instance struct {
	stage     stage
	old, next *weir.Node // nil if the process has no such node
}

// allow replaces Limiter.Allow in the service. It returns the decisions of all clusters that
// decided the check.
func (i *instance) allow(ctx context.Context, limit weir.Limit, key string) (by []weir.Decision, err error) {
	var old, next *weir.Limiter
	if i.old != nil {
		if old, err = i.old.Limiter(limit); err != nil {
			return nil, err
		}
	}
	if i.next != nil {
		if next, err = i.next.Limiter(limit); err != nil {
			return nil, err
		}
	}
	if i.stage == nextAlone {
		d, err := next.Allow(ctx, key)
		return []weir.Decision{d}, err
	}
	d, err := old.Allow(ctx, key)
	if i.stage == oldAlone || err != nil || !d.Allowed {
		return []weir.Decision{d}, err
	}
	if i.stage == oldFirst {
		_, err = i.next.AllowAll(ctx, weir.Ask{Limiter: next, Key: key, Shadow: true})
		return []weir.Decision{d}, err
	}
	other, err := next.Allow(ctx, key)
	if !other.Allowed {
		_ = old.Refund(ctx, key, 1)
	}
	return []weir.Decision{d, other}, err
}

// reseeding is a service that moves from one cluster to another.
type reseeding struct {
	*clients[*instance]
	network   *weirtest.Network
	names     []string
	instances map[string]*instance
	keys      []*reseededKey
}

type reseededKey struct {
	name  string
	limit weir.Limit
	when  []time.Time // it was admitted
}

var oldSeed, nextSeed = []byte("a seed that leaked"), []byte("a seed of tomorrow")

func newReseeding(t *testing.T) *reseeding {
	r := &reseeding{
		clients: newClients[*instance](t), network: weirtest.NewNetwork(1, weirtest.Link{Latency: latency, Jitter: latency}),
		names: hosts(3), instances: make(map[string]*instance),
	}
	addHosts(r.network, r.names...)
	r.network.SetName("weir.internal", r.names...)
	for _, name := range r.names {
		r.restart(name, oldAlone)
	}
	r.whole()
	for k := range reseedKeys {
		algorithm := algorithms[k%len(algorithms)]
		key := &reseededKey{name: fmt.Sprint("key ", k), limit: weir.Limit{Name: algorithm.String(), Algorithm: algorithm, Rate: reseedRate, Per: reseedPer}}
		r.keys = append(r.keys, key)
		r.add(k, time.Duration(k)*reseedEvery/reseedKeys, reseedEvery, func(i *instance) { r.ask(i, key) })
	}
	return r
}

func (r *reseeding) ask(i *instance, key *reseededKey) {
	by, err := i.allow(r.t.Context(), key.limit, key.name)
	allowed := err == nil
	for _, d := range by {
		allowed = allowed && d.Allowed
		r.judgeDecision(key.name, d, err)
	}
	if allowed {
		key.when = append(key.when, time.Now())
	}
}

// node starts a node on the given host. The port identifies the cluster.
func (r *reseeding) node(name, port string, seed []byte) (*weir.Node, error) {
	sum := sha256.Sum256(seed)
	return startOn(r.t.Context(), r.t, r.network.Host(name), true, cluster.Config{
		Bind: name + ":" + port, Join: []string{"weir.internal:" + port}, Seed: [16]byte(sum[:]), Secrets: [][]byte{older},
	}, weir.Config{Seed: seed})
}

const oldPort, nextPort = "7946", "7947"

// restart starts a new instance of the service on a host. When its nodes are ready, the instance
// receives requests.
func (r *reseeding) restart(name string, s stage) {
	r.t.Helper()
	i := &instance{stage: s}
	var err error
	if s != nextAlone {
		i.old, err = r.node(name, oldPort, oldSeed)
		require.NoError(r.t, err)
	}
	if s != oldAlone {
		i.next, err = r.node(name, nextPort, nextSeed)
		require.NoError(r.t, err)
	}
	r.instances[name] = i
	for _, n := range i.nodes() {
		require.True(r.t, waitFor(time.Minute, n.Ready), "%s is ready again", name)
	}
	r.serve(i)
}

func (i *instance) nodes() []*weir.Node {
	return slices.DeleteFunc([]*weir.Node{i.old, i.next}, func(n *weir.Node) bool { return n == nil })
}

// rollOut restarts all instances in turn. An instance must not receive requests
// after its nodes have left, because the last node of a cluster has no other node to ask.
func (r *reseeding) rollOut(s stage) {
	r.t.Helper()
	for _, name := range r.names {
		i := r.instances[name]
		r.drain(i)
		for _, n := range i.nodes() {
			require.NoError(r.t, n.Leave(r.t.Context()))
			require.NoError(r.t, n.Close())
		}
		r.restart(name, s)
		time.Sleep(restartEvery / 2)
	}
	r.whole()
}

// whole waits until all nodes of each cluster are ready and see each other.
func (r *reseeding) whole() {
	r.t.Helper()
	for _, of := range []func(*instance) *weir.Node{func(i *instance) *weir.Node { return i.old }, func(i *instance) *weir.Node { return i.next }} {
		var nodes []*weir.Node
		for _, i := range r.instances {
			if n := of(i); n != nil {
				nodes = append(nodes, n)
			}
		}
		require.True(r.t, waitFor(time.Minute, func() bool { return areWhole(nodes) }))
	}
}

// mostInWindow returns the largest number of admitted checks in any window of Per. It uses the time of
// the response, which differs from the time of the owner by some milliseconds.
func (k *reseededKey) mostInWindow() int { return mostWithin(k.limit.Per-5*time.Millisecond, k.when) }

// mostAboveRate returns the largest number of units that were admitted in any interval above a burst
// and the rate in that interval.
func (k *reseededKey) mostAboveRate() (most float64) {
	floor := 0.0 // the least value of the units admitted before a time, minus the units of the rate until then
	for i, at := range k.when {
		granted := float64(k.limit.Rate) * float64(at.Sub(k.when[0])) / float64(k.limit.Per)
		floor = min(floor, float64(i)-granted)
		most = max(most, float64(i+1)-granted-floor-float64(k.limit.Rate))
	}
	return most
}

// The bounds are in docs/rotation.md, for keys that are checked all the time. A bucket may admit
// another burst, once. The bounds of the other algorithms stay the same.
func TestLeakedSeedIsReplacedWithoutFailedCheck(t *testing.T) {
	testenv.SkipAlike(t, "TestSecretsAreRotatedWithoutFailedCheck")
	testenv.SkipUnlessFull(t, "TestSecretsAreRotatedWithoutFailedCheck, and TestFastSeedReplacementCostsOneMoreLimit")
	inBubble(t, func(t *testing.T) {
		r := newReseeding(t)
		begun := time.Now()
		time.Sleep(2 * reseedPer)
		r.rollOut(oldFirst)
		r.rollOut(oldAlone)
		r.rollOut(oldFirst)
		time.Sleep(2 * reseedPer)
		r.rollOut(both)
		r.rollOut(oldFirst)
		r.rollOut(both)
		r.rollOut(nextAlone)
		time.Sleep(2 * reseedPer)
		r.requireNoFailures()
		whole := float64(time.Since(begun)) / float64(reseedPer) * reseedRate
		for _, k := range r.keys {
			t.Logf("%v: %d at most in a window, %.1f above burst and rate, %d in all", k.limit.Algorithm, k.mostInWindow(), k.mostAboveRate(), len(k.when))
			switch k.limit.Algorithm {
			case weir.SlidingLog:
				require.LessOrEqual(t, k.mostInWindow(), reseedRate)
			case weir.SlidingWindow, weir.FixedWindow:
				require.Less(t, k.mostInWindow(), 2*reseedRate)
			default:
				require.LessOrEqual(t, k.mostAboveRate(), float64(reseedRate))
			}
			require.GreaterOrEqual(t, float64(len(k.when)), 0.97*whole, "%v", k.limit.Algorithm)
		}
		_, err := r.node("z", nextPort, oldSeed)
		require.ErrorContains(t, err, "another Seed")
	})
}

// A rollout without the stage in which both clusters count costs at most another limit.
func TestFastSeedReplacementCostsOneMoreLimit(t *testing.T) {
	testenv.SkipAlike(t, "TestSecretsAreRotatedWithoutFailedCheck")
	inBubble(t, func(t *testing.T) {
		r := newReseeding(t)
		time.Sleep(2 * reseedPer)
		r.rollOut(nextAlone)
		time.Sleep(2 * reseedPer)
		r.end()
		for _, k := range r.keys {
			t.Logf("%v: %d at most in a window, %.1f above burst and rate", k.limit.Algorithm, k.mostInWindow(), k.mostAboveRate())
			if k.limit.Algorithm == weir.SlidingLog {
				require.Greater(t, k.mostInWindow(), reseedRate)
				require.LessOrEqual(t, k.mostInWindow(), 2*reseedRate)
			}
		}
	})
}
