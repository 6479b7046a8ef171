package weir_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

// Those who start together may meet each other before they hear of anybody who
// serves. In a split they weigh nothing all the same.
func TestNodesThatStartTogetherInASplitWeighNothing(t *testing.T) {
	t.Parallel()
	inBubbles(t, func(t *testing.T, gossip bool) {
		w := newWorld(t, 5, gossip)
		newcomers := []string{"f", "g", "h", "i"}
		side := append([]string{"a", "b"}, newcomers...)
		for _, name := range newcomers {
			w.network.Host(name)
		}
		w.network.Split(side, []string{"c", "d", "e"})
		time.Sleep(3 * time.Second)
		w.startTogether(t, gossip, weir.Config{}, newcomers...)
		for range 20 {
			time.Sleep(500 * time.Millisecond)
			for _, name := range side {
				for _, m := range w.nodes[name].Members() {
					if host := m.Name[:1]; host > "e" {
						require.NotEqual(t, weir.Serving, m.State, "%s, to %s", host, name)
					}
				}
			}
		}
		for _, name := range newcomers {
			require.True(t, w.nodes[name].Ready(), "%s has nothing to wait for", name)
		}
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 100, Per: time.Hour, Partition: weir.FairShare})
		for _, owner := range []string{"a", "c"} {
			key := keyOf(t, ls[owner])
			require.Equal(t, 40, ask(t, ls, key, 100, side...))
			require.Equal(t, 60, ask(t, ls, key, 100, "c", "d", "e"))
		}
		w.network.Heal()
		require.True(t, within(30*time.Second, func() bool { return w.agree(w.names...) }), "now they join")
		w.close(t)
	})
}

// Who starts alone serves at once; of those who start together one begins when it
// has had the time to hear of those who serve, and the others join it.
func TestAFirstStartIsReadySoon(t *testing.T) {
	t.Parallel()
	inBubbles(t, func(t *testing.T, gossip bool) {
		for n, soon := range map[int]time.Duration{1: 0, 2: 2 * time.Second, 3: 2 * time.Second, 5: 2 * time.Second} {
			for _, expect := range []int{0, n} {
				w := &world{weirtest.NewNetwork(1, weirtest.Link{Latency: latency}), nil, make(map[string]*weir.Node), gossip}
				begun := time.Now()
				w.startTogether(t, gossip, weir.Config{Expect: expect}, hosts(n)...)
				ready := func() bool {
					for _, node := range w.nodes {
						if !node.Ready() {
							return false
						}
					}
					return w.agree(w.names...)
				}
				if soon == 0 {
					require.True(t, ready(), "who is alone")
					require.Zero(t, time.Since(begun))
				}
				require.True(t, within(20*time.Second, ready))
				t.Log(n, "nodes are ready after", time.Since(begun))
				require.LessOrEqual(t, time.Since(begun), soon)
				ls := w.limiters(t, weir.Limit{Name: "test", Rate: 10, Per: time.Hour})
				require.Equal(t, 10, ask(t, ls, "key", 10, w.names...))
				w.close(t)
			}
		}
	})
}

// Soon after a heal nobody holds what was held by one that crashed in the split. Who
// starts then would wait for that from one that has not got it, and that one take
// who has joined for its owner. Checks find the one that answers, now and later.
func TestThoseWhoJoinAfterAHealWaitForOneAnotherInNoCircle(t *testing.T) {
	t.Parallel()
	inBubbles(t, func(t *testing.T, gossip bool) {
		w := newWorld(t, 3, gossip)
		w.network.Split([]string{"a"}, []string{"b"}, []string{"c"})
		time.Sleep(2 * time.Second)
		w.network.Host("c").Kill()
		w.network.Heal()
		time.Sleep(time.Second)
		w.start(t, "c", gossip, weir.Config{})
		time.Sleep(2 * time.Second)
		w.network.Host("d")
		w.names = append(w.names, "d")
		w.start(t, "d", gossip, weir.Config{})
		time.Sleep(2 * time.Second)
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 100, Per: time.Hour})
		passed := func() (n uint64) {
			for _, name := range w.names {
				n += w.nodes[name].Stats().Passed
			}
			return n
		}
		for i := range 800 {
			for _, name := range w.names {
				before := passed()
				_, err := ls[name].Allow(t.Context(), fmt.Sprint(i%80))
				require.NoError(t, err)
				require.LessOrEqual(t, passed()-before, uint64(3), "key %d of %s, round %d", i%80, name, i/80)
			}
			if i%80 == 79 {
				time.Sleep(2 * time.Second)
			}
		}
		require.True(t, w.agree(w.names...), "all have joined")
		w.close(t)
	})
}

// Where all members of a side have crashed and started again, one of the newcomers
// answers for it: a side has one FailOpen limit, not one for each of them.
func TestASideOfNewcomersAgreesOnAStandIn(t *testing.T) {
	t.Parallel()
	inBubbles(t, func(t *testing.T, gossip bool) {
		w := newWorld(t, 3, gossip)
		w.network.Split([]string{"a"}, []string{"b", "c"})
		for _, name := range []string{"b", "c"} {
			time.Sleep(3 * time.Second)
			w.network.Host(name).Kill()
			time.Sleep(3 * time.Second)
			w.start(t, name, gossip, weir.Config{})
		}
		time.Sleep(3 * time.Second)
		ls := w.limiters(t, weir.Limit{Name: "open", Rate: 100, Per: time.Hour, Partition: weir.FailOpen})
		shared := w.limiters(t, weir.Limit{Name: "shared", Rate: 100, Per: time.Hour})
		for i := range 10 {
			require.Equal(t, 100, ask(t, ls, fmt.Sprint(i), 100, "b", "c"))
			require.Equal(t, 0, ask(t, shared, fmt.Sprint(i), 1, "b", "c"), "they weigh nothing")
		}
		w.network.Heal()
		require.True(t, within(30*time.Second, func() bool { return w.agree(w.names...) }))
		for i := range 10 {
			require.Equal(t, 0, ask(t, ls, fmt.Sprint(i), 1, w.names...), "what it admitted counts")
		}
		w.close(t)
	})
}
