package clustertests

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// holding is the set of holds on a key, for all nodes of a world.
type holding struct {
	t     *testing.T
	w     *world
	ls    map[string]*weir.Limiter
	key   string
	rate  int64
	holds map[string][]*weir.Hold // keyed by the name of the host
	units int64
}

func (w *world) hold(t *testing.T, key string, rate int64) *holding {
	return &holding{t: t, w: w, ls: w.limiters(t, weir.Limit{Name: "in flight", Algorithm: weir.InFlight, Rate: rate}), key: key, rate: rate, holds: make(map[string][]*weir.Hold)}
}

// takeUnits requests a hold at a node, and reports whether the hold is granted.
func (h *holding) takeUnits(name string, units int64) bool {
	h.t.Helper()
	hold, err := h.ls[name].Hold(h.t.Context(), h.key, units)
	require.NoError(h.t, err)
	if !hold.Decision().Allowed {
		return false
	}
	h.holds[name] = append(h.holds[name], hold)
	h.units += units
	require.LessOrEqual(h.t, h.units, h.rate, "units held at the same time, and the limit")
	return true
}

// takeAll takes single units at each node in turn until all nodes deny a unit, and returns the
// number of units.
func (h *holding) takeAll(names ...string) (taken int64) {
	h.t.Helper()
	for i, denied := 0, 0; denied < len(names); i++ {
		if h.takeUnits(names[i%len(names)], 1) {
			taken, denied = taken+1, 0
		} else {
			denied++
		}
	}
	return taken
}

// release releases the oldest hold of a node.
func (h *holding) release(name string) {
	hold := h.holds[name][0]
	h.holds[name] = h.holds[name][1:]
	hold.Release()
	h.units--
}

func (h *holding) countLost(name string) (lost int) {
	for _, hold := range h.holds[name] {
		select {
		case <-hold.Lost():
			lost++
		default:
		}
	}
	return lost
}

// The stand-in may be the node that asks. The node must ask the other members first,
// because it knows only its own holds.
func TestStandInRequestsHoldsBeforeItGrants(t *testing.T) {
	inWorlds(t, 4, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, weir.Limit{Name: "in flight", Algorithm: weir.InFlight, Rate: 10})
		names, keys := []string{"a", "c", "d"}, keysOf(ls["b"], 12)
		for k, key := range keys {
			h := &holding{t: t, w: w, ls: ls, key: key, rate: 10, holds: make(map[string][]*weir.Hold)}
			for i := range 9 + k%2 {
				require.True(t, h.takeUnits(names[i%len(names)], 1))
			}
		}
		w.network.Host("b").Kill()
		var all sync.WaitGroup
		for i, key := range keys {
			all.Go(func() {
				for _, left := range []bool{i%2 == 0, false} {
					h, err := ls[names[i%len(names)]].Hold(t.Context(), key, 1)
					assert.NoError(t, err)
					assert.Equal(t, left, h.Decision().Allowed, key)
				}
			})
		}
		all.Wait()
	})
}

func TestHoldsOfDeadHolderExpireAfterTerm(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		h := w.hold(t, "", 5)
		h.key = keyOf(t, h.ls["b"]) // if a owned the key, no other member would know the holds of a
		require.EqualValues(t, 5, h.takeAll("a"))
		time.Sleep(time.Minute)
		require.Zero(t, h.takeAll("b", "c"))
		w.network.Host("a").Kill()
		died := time.Now()
		h.units = 0
		require.True(t, waitFor(time.Minute, func() bool { return h.takeUnits("b", 1) }))
		require.GreaterOrEqual(t, time.Since(died), weir.HoldTerm-time.Second) // the last renewal was at most a second earlier
		require.LessOrEqual(t, time.Since(died), weir.HoldTerm+2*time.Second)
	})
}

// Parts of holds return at once. After a crash or a leave of the owner, the next owner counts the units that
// the holds keep.
func TestReturnedPartsOfHoldsStayFree(t *testing.T) {
	for name, crashes := range map[string]bool{"crash": true, "leave": false} {
		t.Run(name, func(t *testing.T) {
			inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
				h := w.hold(t, "", 10)
				h.key = keyOf(t, h.ls["b"])
				require.True(t, h.takeUnits("a", 6))
				require.True(t, h.takeUnits("c", 4))
				require.False(t, h.takeUnits("b", 1))
				for name, back := range map[string]int64{"a": 5, "c": 2} {
					hold := h.holds[name][0]
					had := map[string]int64{"a": 6, "c": 4}[name]
					require.Equal(t, had, hold.ReleaseN(0))
					require.Equal(t, had-back, hold.ReleaseN(back))
					require.WithinDuration(t, time.Now().Add(9*time.Second), hold.Expires(), 3*time.Second)
					h.units -= back
				}
				time.Sleep(10 * time.Millisecond)
				require.True(t, h.takeUnits("a", 3))
				time.Sleep(3 * time.Second)
				if crashes {
					w.network.Host("b").Kill()
					time.Sleep(5 * time.Second)
				} else {
					w.leave(t, "b")
				}
				require.Equal(t, int64(4), h.takeAll("a", "c"))
				time.Sleep(time.Minute)
				require.Zero(t, h.takeAll("a", "c"))
				require.Zero(t, h.holds["c"][0].ReleaseN(2))
				require.True(t, h.holds["c"][0].Expires().IsZero())
				h.units -= 2
				time.Sleep(10 * time.Millisecond)
				require.Equal(t, int64(2), h.takeAll("a", "c"))
			})
		})
	}
}

// Each node states the units and the remaining term of a client's hold, and does not
// renew the hold.
func TestPeekHoldStatesUnitsAndTerm(t *testing.T) {
	inWorlds(t, 3, seeded, func(t *testing.T, w *world) {
		ls := w.limiters(t, weir.Limit{Name: "in flight", Algorithm: weir.InFlight, Rate: 10})
		key := keyOf(t, ls["b"])
		text, _, err := ls["a"].HoldFor(t.Context(), key, 4, time.Minute)
		require.NoError(t, err)
		granted, units := time.Now(), int64(4)
		for range 3 {
			for _, l := range ls {
				held, left, err := l.PeekHold(t.Context(), key, text)
				require.NoError(t, err)
				require.Equal(t, units, held)
				require.InDelta(t, time.Minute-time.Since(granted), left, float64(10*time.Millisecond))
			}
			time.Sleep(10 * time.Second)
			granted, units = time.Now(), units-1
			held, err := ls["c"].ShrinkHold(t.Context(), key, text, units, time.Minute)
			require.NoError(t, err)
			require.Equal(t, units, held)
		}
		time.Sleep(time.Minute + time.Second)
		held, left, err := ls["c"].PeekHold(t.Context(), key, text)
		require.ErrorIs(t, err, weir.ErrExpired)
		require.Zero(t, held+int64(left))
		_, err = ls["c"].ShrinkHold(t.Context(), key, text, 0, time.Minute)
		require.ErrorIs(t, err, weir.ErrInvalid)
	})
}

func TestHoldsOfLeaverAreReleasedAtOnce(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		h := w.hold(t, "key", 5)
		require.EqualValues(t, 5, h.takeAll("a"))
		require.Zero(t, h.countLost("a"))
		w.leave(t, "a")
		require.Len(t, h.holds["a"], h.countLost("a"))
		h.units = 0
		require.True(t, waitFor(time.Second, func() bool { return h.takeUnits("b", 1) }))
	})
}

// The owner asks the holder to confirm holds that the holder does not renew.
func TestLostReleaseIsNoticedWithin3s(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		h := w.hold(t, "", 3)
		h.key = keyOf(t, h.ls["b"])
		require.EqualValues(t, 3, h.takeAll("a"))
		w.network.Cut("a", "b")
		h.release("a")
		time.Sleep(100 * time.Millisecond)
		w.network.Heal()
		require.True(t, waitFor(3*time.Second, func() bool { return h.takeUnits("c", 1) }))
	})
}

// Nodes d and e join, and then nodes b and c leave. In the meantime, node a takes and
// releases holds. The number of units held must not exceed the limit, and no hold may be
// lost.
func TestDeployKeepsHolds(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		const keys, rate = 30, 4
		var hs []*holding
		for i := range keys {
			hs = append(hs, w.hold(t, fmt.Sprint(i), rate))
		}
		client := "a"
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() { // the holder stays while the other nodes are replaced
			defer close(done)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				h := hs[i%keys]
				if i/keys%3 == 2 && len(h.holds[client]) > 0 {
					h.release(client)
				} else {
					h.takeUnits(client, 1)
				}
			}
		}()
		for _, name := range []string{"d", "e"} {
			w.start(t, name, weir.Config{})
			require.True(t, waitFor(time.Minute, w.nodes[name].Ready))
		}
		for _, name := range []string{"b", "c"} {
			w.leave(t, name)
			delete(w.nodes, name)
		}
		close(stop)
		<-done
		time.Sleep(3 * time.Second) // docs/guarantees.md: the last releases may have met moving authority
		for _, h := range hs {
			held := h.units
			h.ls = w.limiters(t, h.ls["a"].Limit())
			require.Equal(t, rate-held, h.takeAll("d", "e"), "with %d of %d units held by a", held, rate)
			require.Zero(t, h.countLost("a"))
		}
	})
}

func TestSideGrantsHoldsWithinItsShare(t *testing.T) {
	inWorlds(t, 5, weir.Config{}, func(t *testing.T, w *world) {
		{
			h := w.hold(t, "", 10)
			h.key = keyOf(t, h.ls["a"])
			require.EqualValues(t, 10, h.takeAll("d", "e"))
			w.network.Split([]string{"a", "b", "c"}, []string{"d", "e"})
			time.Sleep(5 * time.Second)
			require.Zero(t, h.takeAll("a", "b", "c"), "the owner still knows the holds")
			time.Sleep(10 * time.Second)
			h.units = 0
			require.EqualValues(t, 10, h.takeAll("a", "b", "c"), "the majority has not been connected to the holders for HoldTerm")
			require.Zero(t, h.countLost("d")+h.countLost("e"), "their side renews them")
			require.Zero(t, h.takeAll("d", "e"), "more than its share of 4 is held")
			w.network.Heal()
			time.Sleep(10 * time.Second)
			for _, name := range []string{"a", "b", "c"} {
				for len(h.holds[name]) > 0 {
					h.release(name)
				}
			}
			h.units = 10
			time.Sleep(time.Second)
			require.Zero(t, h.takeAll("a", "b", "c"), "the other side still holds 10 units")
		}
	})
}

func TestInvalidHoldsAreRefused(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		ctx := t.Context()
		n := w.nodes["a"]
		for _, l := range []weir.Limit{
			{Name: "per", Algorithm: weir.InFlight, Rate: 1, Per: time.Second},
			{Name: "burst", Algorithm: weir.InFlight, Rate: 1, Burst: 1},
			{Name: "global", Algorithm: weir.InFlight, Rate: 1, Scope: weir.Global},
			{Name: "rate", Algorithm: weir.InFlight},
		} {
			_, err := n.Limiter(l)
			require.ErrorIs(t, err, weir.ErrInvalid, l.Name)
		}
		h := w.hold(t, "key", 3)
		l := h.ls["a"]
		for name, f := range map[string]func() error{
			"Allow":       func() error { _, err := l.Allow(ctx, "key"); return err },
			"AllowN":      func() error { _, err := l.AllowN(ctx, "key", 2); return err },
			"Debit":       func() error { _, err := l.Debit(ctx, "key", 2); return err },
			"Refund":      func() error { return l.Refund(ctx, "key", 2) },
			"Reset":       func() error { return l.Reset(ctx, "key") },
			"Wait":        func() error { return l.Wait(ctx, "key", 1) },
			"AllowAll":    func() error { _, err := n.AllowAll(ctx, weir.Ask{Limiter: l, Key: "key", Units: 1}); return err },
			"no units":    func() error { _, err := l.Hold(ctx, "key", 0); return err },
			"too many":    func() error { _, err := l.Hold(ctx, "key", 4); return err },
			"a long wait": func() error { _, _, err := l.HoldFor(ctx, "key", 1, 2*time.Hour); return err },
			"not InFlight": func() error {
				o, _ := n.Limiter(weir.Limit{Name: "o", Rate: 1, Per: time.Second})
				_, err := o.Hold(ctx, "key", 1)
				return err
			},
		} {
			require.ErrorIs(t, f(), weir.ErrInvalid, name)
		}
		d, err := l.Peek(ctx, "key")
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.EqualValues(t, 3, d.Remaining)
		require.EqualValues(t, 3, h.takeAll("a"))
		d, err = l.Peek(ctx, "key")
		require.NoError(t, err)
		require.False(t, d.Allowed)

		lower, err := n.Limiter(weir.Limit{Name: "in flight", Algorithm: weir.InFlight, Rate: 2, Version: 1})
		require.NoError(t, err)
		hold, err := lower.Hold(ctx, "key", 1)
		require.NoError(t, err)
		require.False(t, hold.Decision().Allowed)
		h.release("a")
		h.release("a")
		hold, err = lower.Hold(ctx, "key", 1)
		require.NoError(t, err)
		require.True(t, hold.Decision().Allowed)
		hold.Release()
		hold.Release()
		require.Equal(t, 1, n.Stats().Holds.Held)
	})
}

// A node that is cut off must lose its holds before any other node can get the units. The share of the node is
// less than the number of units that it holds.
func TestFrozenHolderLosesHoldsBeforeOthersGetThem(t *testing.T) {
	inWorlds(t, 4, weir.Config{}, func(t *testing.T, w *world) {
		h := w.hold(t, "", 1)
		h.key = keyOf(t, h.ls["b"])
		require.True(t, h.takeUnits("a", 1))
		lost := h.holds["a"][0].Lost()
		w.network.Host("a").Freeze()
		for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			hold, err := h.ls["c"].Hold(t.Context(), h.key, 1)
			require.NoError(t, err)
			if hold.Decision().Allowed {
				require.Less(t, time.Since(begun), weir.HoldTerm+2*time.Second)
				break
			}
		}
		select {
		case <-lost:
		default:
			t.Fatal("the holder has not lost its hold yet")
		}
		w.network.Host("a").Thaw()
		time.Sleep(3 * time.Second)
		h.units = 0
		require.False(t, h.takeUnits("a", 1))
	})
}

// An owner that thaws does not know the holds that its stand-in has granted. It asks the other
// members before it grants units.
func TestThawedOwnerRequestsHoldsBeforeItGrants(t *testing.T) {
	inWorlds(t, 4, weir.Config{}, func(t *testing.T, w *world) {
		h := w.hold(t, "", 4)
		h.key = keyOf(t, h.ls["b"])
		require.True(t, h.takeUnits("a", 1))
		w.network.Host("b").Freeze()
		time.Sleep(3 * time.Second)
		require.EqualValues(t, 3, h.takeAll("a", "c"), "a already holds a unit")
		w.network.Host("b").Thaw()
		for range 50 {
			require.Zero(t, h.takeAll("a", "c", "d"))
			time.Sleep(20 * time.Millisecond)
		}
	})
}
