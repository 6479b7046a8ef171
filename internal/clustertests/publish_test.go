package clustertests

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
)

// published returns all published values of a node in the form "a=1 b=2 ".
func published(n *weir.Node) (s string) {
	values, _ := n.Published("")
	for _, p := range values {
		s += fmt.Sprintf("%s=%s ", p.Name, p.Value)
	}
	return s
}

// awaitPublished waits until the values published on each of the given nodes are equal to want.
func (w *world) awaitPublished(t *testing.T, d time.Duration, want string, names ...string) {
	t.Helper()
	ok := waitFor(d, func() bool {
		for _, name := range names {
			if published(w.nodes[name]) != want {
				return false
			}
		}
		return true
	})
	if !ok {
		for _, name := range names {
			t.Logf("%s has %q", name, published(w.nodes[name]))
		}
		t.Fatalf("after %v not all have %q", d, want)
	}
}

func (w *world) publish(t *testing.T, on, name, value string) {
	t.Helper()
	require.NoError(t, w.nodes[on].Publish(name, 0, []byte(value)))
}

func TestPublishedValuesReachAllNodes(t *testing.T) {
	t.Parallel()
	for promise, c := range map[string]struct {
		play  func(*testing.T, func(t *testing.T, gossip bool))
		check func(t *testing.T, w *world)
	}{
		"at once, and the last writer wins": {inBubbles, func(t *testing.T, w *world) {
			w.publish(t, "a", "x", "1")
			w.awaitPublished(t, 20*time.Millisecond, "x=1 ", w.names...)
			w.publish(t, "b", "x", "2")
			w.publish(t, "c", "y", "3")
			w.awaitPublished(t, 20*time.Millisecond, "x=2 y=3 ", w.names...)
			w.publish(t, "e", "x", "")
			w.awaitPublished(t, 20*time.Millisecond, "y=3 ", w.names...)
		}},
		"through others, where a link is down": {inBubbles, func(t *testing.T, w *world) {
			w.network.Cut("a", "b")
			time.Sleep(5 * time.Second)
			w.publish(t, "a", "x", "1")
			w.awaitPublished(t, 20*time.Millisecond, "x=1 ", w.names...)
		}},
		"of both sides, after a split": {inBubblesOfGossip, func(t *testing.T, w *world) {
			w.publish(t, "a", "both", "0")
			w.publish(t, "a", "taken back", "0")
			w.awaitPublished(t, time.Second, "both=0 taken back=0 ", w.names...)
			w.network.Split([]string{"a", "b"}, []string{"c", "d", "e"})
			time.Sleep(10 * time.Second)
			w.publish(t, "a", "both", "1")
			w.publish(t, "a", "here", "1")
			w.publish(t, "b", "taken back", "")
			time.Sleep(time.Second)
			w.publish(t, "c", "both", "2")
			w.publish(t, "d", "there", "2")
			w.awaitPublished(t, 50*time.Millisecond, "both=1 here=1 ", "a", "b")
			w.awaitPublished(t, 50*time.Millisecond, "both=2 taken back=0 there=2 ", "c", "d", "e")
			w.network.Heal()
			met := time.Second
			if w.gossips {
				met = 8 * time.Second // the time in which the sides find each other again
			}
			w.awaitPublished(t, met, "both=2 here=1 there=2 ", w.names...)
		}},
		"while one of them lives": {inBubblesOfGossip, func(t *testing.T, w *world) {
			w.publish(t, "a", "x", "1")
			time.Sleep(100 * time.Millisecond)
			for _, name := range w.names[:4] {
				w.network.Host(name).Kill()
			}
			time.Sleep(time.Second)
			w.publish(t, "e", "y", "2")
			for _, name := range w.names[:4] {
				w.start(t, name, weir.Config{})
			}
			w.awaitPublished(t, 500*time.Millisecond, "x=1 y=2 ", w.names...)
			w.publish(t, "a", "x", "")
			w.awaitPublished(t, 50*time.Millisecond, "y=2 ", w.names...)
		}},
		"all of it, also if it is much": {inBubbles, func(t *testing.T, w *world) {
			values := testenv.PickFull(t, 300, 3000) // more than a message has room for
			w.network.Host("e").Kill()
			for i := range values {
				require.NoError(t, w.nodes["a"].Publish(fmt.Sprintf("%05d", i), 1, make([]byte, 1000)))
			}
			w.start(t, "e", weir.Config{})
			require.True(t, waitFor(2*time.Second, func() bool {
				for _, name := range w.names {
					if got, _ := w.nodes[name].Published(""); len(got) != values {
						return false
					}
				}
				return true
			}))
		}},
	} {
		t.Run(promise, func(t *testing.T) {
			c.play(t, func(t *testing.T, gossip bool) { c.check(t, newWorld(t, 5, gossip)) })
		})
	}
}
