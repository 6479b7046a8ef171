package weirtest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/testenv"
)

func TestPausesComeOnceInEachPeriod(t *testing.T) {
	from := time.Unix(1000, 0)
	p := pauses{from: from, pause: 60 * time.Millisecond, every: 100 * time.Millisecond}
	for _, c := range []struct{ at, resumes time.Duration }{
		{-time.Hour, -time.Hour},
		{-1, -1},
		{0, 60 * time.Millisecond},
		{1, 60 * time.Millisecond},
		{59 * time.Millisecond, 60 * time.Millisecond},
		{60 * time.Millisecond, 60 * time.Millisecond},
		{99 * time.Millisecond, 99 * time.Millisecond},
		{100 * time.Millisecond, 160 * time.Millisecond},
		{1030 * time.Millisecond, 1060 * time.Millisecond},
	} {
		require.Equal(t, from.Add(c.resumes), p.resumeTime(from.Add(c.at)), c.at)
	}
	for _, c := range []struct{ from, to, paused time.Duration }{
		{-time.Hour, 0, 0},
		{-time.Hour, 70 * time.Millisecond, 60 * time.Millisecond},
		{20 * time.Millisecond, 50 * time.Millisecond, 30 * time.Millisecond},
		{20 * time.Millisecond, 90 * time.Millisecond, 40 * time.Millisecond},
		{50 * time.Millisecond, 1030 * time.Millisecond, 10*time.Millisecond + 9*60*time.Millisecond + 30*time.Millisecond},
	} {
		require.Equal(t, c.paused, p.pausedBetween(from.Add(c.from), from.Add(c.to)), c.from)
	}
	var none pauses
	require.Zero(t, none.pausedBetween(from, from.Add(time.Hour)))
	require.Equal(t, from, none.resumeTime(from))
	require.Panics(t, func() { NewNetwork(1, Link{}).Host("a").Throttle(time.Second, time.Second) })
}

// A pause also holds messages that are on their way when it begins, and does not change
// their order.
func TestThrottledHostExchangesMessagesBetweenPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(1, Link{Latency: 5 * time.Millisecond})
		a, b := n.Host("a"), n.Host("b")
		type arrival struct {
			number int
			at     time.Time
		}
		var there []arrival
		out := flow{from: a, to: b}
		b.Throttle(70*time.Millisecond, 100*time.Millisecond)
		a.Throttle(30*time.Millisecond, 40*time.Millisecond)
		for i := range 2000 {
			if i == 1000 {
				a.Throttle(0, 0)
			}
			n.mu.Lock()
			sent := time.Now()
			leaves := a.resumeTime(sent)
			n.send(&out, call(func() {
				require.Equal(t, time.Now(), b.resumeTime(time.Now()), "it runs")
				require.GreaterOrEqual(t, time.Since(leaves), 5*time.Millisecond)
				require.Less(t, time.Since(leaves), 76*time.Millisecond)
				there = append(there, arrival{i, time.Now()})
			}))
			n.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
		b.Throttle(0, 0)
		require.Zero(t, b.Paused())
		time.Sleep(time.Second)
		n.mu.Lock()
		defer n.mu.Unlock()
		require.Len(t, there, 2000)
		for i, got := range there {
			require.Equal(t, i, got.number)
		}
	})
}

// A pause also holds messages that were sent before the call of Throttle.
func TestPauseDelaysMessagesOnTheirWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(1, Link{Latency: 500 * time.Millisecond})
		a, b := n.Host("a"), n.Host("b")
		out, came := flow{from: a, to: b}, 0
		n.mu.Lock()
		for range 10 {
			n.send(&out, call(func() {
				require.Equal(t, time.Now(), b.resumeTime(time.Now()), "it runs")
				came++
			}))
		}
		n.mu.Unlock()
		b.Throttle(299*time.Millisecond, 300*time.Millisecond)
		time.Sleep(900 * time.Millisecond)
		n.mu.Lock()
		defer n.mu.Unlock()
		require.Equal(t, 10, came)
	})
}

// A new throttle does not delay messages that wait for the end of a pause.
func TestNewThrottleDoesNotExtendPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(50) {
			h := NewNetwork(seed, Link{}).Host("a")
			h.Throttle(200*time.Millisecond, 300*time.Millisecond)
			for h.Paused() == 0 {
				time.Sleep(10 * time.Millisecond)
			}
			lasts := h.Paused()
			h.Throttle(90*time.Millisecond, 100*time.Millisecond)
			time.Sleep(lasts)
			require.Zero(t, h.Paused(), "seed %d", seed)
		}
	})
}

// runThrottled runs three nodes for a minute, with the given pauses and the given number
// of checks. It returns the number of checks by source, and how often a member was
// disconnected or stalled in a view.
func runThrottled(t *testing.T, gossip bool, pause, every time.Duration, checks int) (sources map[weir.Source]int, missing, stalled int64) {
	sources = make(map[weir.Source]int)
	synctest.Test(t, func(t *testing.T) {
		var settled atomic.Bool
		var gone, silent atomic.Int64
		c, err := NewCluster(t.Context(), Options{Gossip: gossip, Viewed: func(_ string, v *cluster.View) {
			for i := range v.Members {
				if settled.Load() && !v.Direct[i] {
					gone.Add(1)
				}
				if settled.Load() && v.Stalls(i) {
					silent.Add(1)
				}
			}
		}})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		settled.Store(true)
		limit := weir.Limit{Name: "calls", Algorithm: weir.SlidingLog, Rate: 1000, Per: time.Second}
		for _, name := range c.Names() {
			c.Throttle(name, pause, every)
		}
		for i := range checks {
			time.Sleep(time.Minute / time.Duration(checks))
			host := c.Network().Host(c.Names()[i%3])
			time.Sleep(host.Paused())
			l, err := c.Node(host.Name()).Limiter(limit)
			require.NoError(t, err)
			d, err := l.Allow(context.Background(), fmt.Sprint("key ", i%50))
			require.NoError(t, err)
			sources[d.Source]++
		}
		for _, name := range c.Names() {
			c.Throttle(name, 0, 0)
		}
		time.Sleep(time.Second)
		settled.Store(false)
		missing, stalled = gone.Load(), silent.Load()
	})
	return sources, missing, stalled
}

func TestShortPausesCauseNoTimeout(t *testing.T) {
	checks := testenv.PickFull(t, 2000, 6000)
	sources, missing, stalled := runThrottled(t, false, 60*time.Millisecond, 100*time.Millisecond, checks)
	require.Zero(t, missing)
	require.Zero(t, stalled)
	require.Equal(t, checks, sources[weir.Owner]+sources[weir.Forwarded], "%v", sources)
}

// countSources pauses a host repeatedly, and returns the number of checks by source. If
// asks is true, the paused host sends checks for keys of other owners. Otherwise, other
// hosts send checks for keys of the paused host.
func countSources(t *testing.T, asks bool, latency, pause, every time.Duration) (sources map[weir.Source]int) {
	sources = make(map[weir.Source]int)
	synctest.Test(t, func(t *testing.T) {
		c, err := NewCluster(t.Context(), Options{Link: Link{Latency: latency}})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		limit := weir.Limit{Name: "calls", Algorithm: weir.SlidingLog, Rate: 1, Per: time.Hour, NoLeases: true}
		paused := c.Names()[0]
		c.Throttle(paused, pause, every)
		time.Sleep(5 * time.Second) // each node knows the delays of all other nodes
		host := c.Network().Host(paused)
		for i, asked := 0, 0; asked < 1000; i++ {
			from := c.Names()[1+i%2]
			if asks {
				from = paused
			}
			l, err := c.Node(from).Limiter(limit)
			require.NoError(t, err)
			key := fmt.Sprint("key ", i)
			if owned := strings.HasPrefix(l.Owner(key).Name, paused+"-"); owned == asks {
				continue
			}
			asked++
			time.Sleep(7 * time.Millisecond)
			if asks {
				time.Sleep(host.Paused())
			}
			d, err := l.Allow(context.Background(), key)
			require.NoError(t, err)
			sources[d.Source]++
		}
	})
	return sources
}

// A round trip takes longer than the wait for an owner, but not longer than the wait and
// a pause.
func TestPausedAskerKeepsWaitingForOwner(t *testing.T) {
	sources := countSources(t, true, 45*time.Millisecond, 40*time.Millisecond, 100*time.Millisecond)
	require.Equal(t, map[weir.Source]int{weir.Forwarded: 1000}, sources)
}

func TestNodeWaitsForDelayedOwner(t *testing.T) {
	sources := countSources(t, false, 100*time.Microsecond, 120*time.Millisecond, 300*time.Millisecond)
	require.Equal(t, map[weir.Source]int{weir.Forwarded: 1000}, sources)
}

// With only one check per minute, almost only pings show that a member is connected.
func TestNodeDoesNotMistakeOwnPauseForSilence(t *testing.T) {
	for _, every := range []time.Duration{500, 700, 900} {
		_, missing, _ := runThrottled(t, false, 400*time.Millisecond, every*time.Millisecond, 1)
		require.Zero(t, missing, every)
	}
}

func TestPausedNodeStaysConnected(t *testing.T) {
	for _, gossip := range []bool{false, true} {
		t.Run(fmt.Sprintf("gossip %v", gossip), func(t *testing.T) {
			pause := 300 * time.Millisecond
			if gossip {
				testenv.SkipUnlessFull(t, "the same with simulated membership")
				pause = 220 * time.Millisecond // a round trip may take a pause of each node, because timers continue
			}
			checks := testenv.PickFull(t, 2000, 6000)
			sources, missing, _ := runThrottled(t, gossip, pause, 700*time.Millisecond, checks)
			require.Zero(t, missing)
			require.Less(t, sources[weir.Owner]+sources[weir.Forwarded], checks, "%v", sources)
			require.Equal(t, checks, sources[weir.Owner]+sources[weir.Forwarded]+sources[weir.Relayed]+sources[weir.StandIn]+sources[weir.Budget], "%v", sources)
		})
	}
}
