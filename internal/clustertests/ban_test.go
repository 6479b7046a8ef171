package clustertests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
)

// banning bans a key for an hour after three denials within a minute. Its rate is high enough that a key
// that is not banned is admitted again within 100 ms.
var banning = weir.Limit{
	Name: "test", Algorithm: weir.TokenBucket, Rate: 10, Burst: 1, Per: time.Second,
	Ban: weir.Ban{Denials: 3, Within: time.Minute, For: weir.BanLengths{time.Hour}},
}

// ban sends checks of a key to a node until the key is banned.
func ban(t *testing.T, l *weir.Limiter, key string) {
	t.Helper()
	for denials := 0; denials < 3; {
		if d := allowed(t, l, key, 1); !d.Allowed {
			require.False(t, d.Banned)
			denials++
		}
	}
	time.Sleep(time.Millisecond) // until the last denial has reached the owner
	require.True(t, allowed(t, l, key, 1).Banned)
}

// requireBanned requires that the named nodes deny a key because of a ban that ends after
// the duration left.
func requireBanned(t *testing.T, ls limiterMap, key string, left time.Duration, names ...string) {
	t.Helper()
	for _, name := range names {
		d := allowed(t, ls[name], key, 1)
		require.True(t, d.Banned && !d.Allowed, "%s: %+v", name, d)
		require.InDelta(t, left, d.RetryAfter, float64(10*time.Second), name)
		require.Equal(t, d.RetryAfter, d.ResetAfter)
		require.EqualValues(t, 1, d.Limit)
	}
}

func TestBanReachesFiveNodesWithin200ms(t *testing.T) {
	for _, by := range []string{"a", "b"} { // the owner, and another node
		t.Run(by, func(t *testing.T) {
			inWorlds(t, 5, weir.Config{}, func(t *testing.T, w *world) {
				ls := w.limiters(t, banning)
				key := keyOf(t, ls["a"])
				for range 4 { // after the first round, the nodes cache the denial of the limit
					for _, name := range w.names {
						allowed(t, ls[name], key, 1)
					}
				}
				time.Sleep(200 * time.Millisecond)
				requireBanned(t, ls, key, time.Hour, w.names...)
				require.True(t, peek(t, ls["c"], key).Banned)
				served := w.nodes["a"].Stats().Served
				for range 500 { // for five seconds
					requireBanned(t, ls, key, time.Hour, w.names...)
					time.Sleep(10 * time.Millisecond)
				}
				require.LessOrEqual(t, w.nodes["a"].Stats().Served-served, uint64(4))
				time.Sleep(time.Hour)
				require.True(t, allowed(t, ls[by], key, 1).Allowed, "the ban has ended")
			})
		})
	}
}

func TestResetReleasesBanOnAllNodes(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, banning)
		key := keyOf(t, ls["a"])
		ban(t, ls["b"], key)
		requireBanned(t, ls, key, time.Hour, w.names...)
		bans, err := w.nodes["c"].Bans(t.Context())
		require.NoError(t, err)
		require.Empty(t, bans.Missing)
		require.Len(t, bans.Bans, 1)
		b := bans.Bans[0]
		require.Equal(t, weir.BannedKey{Limit: "test", ID: ls["a"].ID(key), Key: key, Known: true, Since: b.Since, Until: b.Until}, b)
		require.InDelta(t, time.Hour, b.Until.Sub(b.Since), float64(time.Second))
		require.InDelta(t, 0, time.Since(b.Since), float64(time.Second))
		for _, name := range w.names {
			require.EqualValues(t, map[bool]uint64{true: 1}[name == "b"], w.nodes[name].Stats().Bans["test"].Begun)
		}

		require.NoError(t, ls["c"].ResetID(t.Context(), b.ID))
		bans, err = w.nodes["c"].Bans(t.Context())
		require.NoError(t, err)
		require.Empty(t, bans.Bans)
		for _, name := range w.names {
			require.True(t, allowed(t, ls[name], key, 1).Allowed)
			time.Sleep(100 * time.Millisecond)
		}
		ban(t, ls["c"], key)
		requireBanned(t, ls, key, time.Hour, w.names...)

		w.network.Split([]string{"a", "c"}, []string{"b"})
		time.Sleep(time.Second)
		var partial *weir.ErrPartial
		require.ErrorAs(t, ls["a"].Reset(t.Context(), key), &partial)
		w.network.Heal()
		require.True(t, waitFor(30*time.Second, func() bool { return w.agree(w.names...) }))
		time.Sleep(10 * time.Second)
		require.True(t, allowed(t, ls["b"], key, 1).Allowed, "a node that a reset has not reached asks the owner again within ten seconds")
	})
}

func TestOnlyDenialsOfWholeLimitCountTowardBan(t *testing.T) {
	inWorlds(t, 5, weir.Config{}, func(t *testing.T, w *world) {
		l := banning
		l.Partition = weir.FairShare
		ls := w.limiters(t, l)
		key := keyOf(t, ls["a"])
		for range 20 {
			allowed(t, ls["b"].Shadow(), key, 1)
			ds, err := w.nodes["c"].AllowAll(t.Context(), weir.Ask{Limiter: ls["c"], Key: key, Shadow: true})
			require.NoError(t, err)
			require.False(t, ds[0].Banned)
		}
		ctx, cancel := context.WithDeadline(t.Context(), time.Now())
		defer cancel()
		for range 20 {
			d, err := ls["d"].Allow(ctx, key)
			require.NoError(t, err)
			require.Equal(t, weir.Budget, d.Source, "a passed deadline leaves the share of the node")
			require.False(t, d.Allowed || d.Banned)
			time.Sleep(time.Millisecond)
		}
		for range 5 {
			require.NoError(t, ls["a"].Wait(t.Context(), key, 1))
		}
		minority := []string{"a", "b"}
		w.network.Split(minority, []string{"c", "d", "e"})
		time.Sleep(2 * time.Second)
		for range 20 {
			for _, name := range w.names {
				require.False(t, allowed(t, ls[name], key, 1).Banned, "a share says nothing about the client")
			}
		}
	})
}

func TestLimitWithBanHasNoLeases(t *testing.T) {
	inWorlds(t, 2, weir.Config{}, func(t *testing.T, w *world) {
		l := weir.Limit{Name: "test", Rate: 1000, Per: time.Hour, Ban: banning.Ban}
		ls := w.limiters(t, l)
		key := keyOf(t, ls["a"])
		for range 100 {
			require.Equal(t, weir.Forwarded, allowed(t, ls["b"], key, 1).Source)
		}
	})
}

func TestDenialsOfAllowAllCountTowardBan(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, banning)
		wide := w.limiters(t, weir.Limit{Name: "wide", Rate: 1000, Per: time.Hour})
		key := keyOf(t, ls["a"])
		for _, name := range []string{"a", "b"} {
			asks := []weir.Ask{{Limiter: ls[name], Key: key}, {Limiter: wide[name], Key: keyOf(t, wide["c"])}}
			for denials := 0; denials < 3; {
				ds, err := w.nodes[name].AllowAll(t.Context(), asks...)
				require.NoError(t, err)
				if time.Sleep(time.Millisecond); !ds.Allowed() {
					denials++
				}
			}
			for range 3 {
				ds, err := w.nodes[name].AllowAll(t.Context(), asks...)
				require.NoError(t, err)
				require.True(t, ds[0].Banned && ds.Strictest().Banned, "%+v", ds)
			}
			require.NoError(t, ls[name].Reset(t.Context(), key))
			time.Sleep(time.Second)
		}
	})
}

// inOwnerChanges runs a test in a cluster of five nodes, once for each way in which the decisions about the
// counts of the node "a" can move to other nodes. The test calls act, which makes the change and returns the
// nodes that must still know the counts.
func inOwnerChanges(t *testing.T, test func(t *testing.T, w *world, act func() (left []string))) {
	t.Parallel()
	for _, c := range []struct {
		name string
		act  func(t *testing.T, w *world) (left []string)
	}{
		{"a crash", func(t *testing.T, w *world) []string {
			w.network.Host("a").Kill()
			require.NoError(t, w.nodes["a"].Close())
			delete(w.nodes, "a")
			return []string{"b", "c", "d", "e"}
		}},
		{"a leave", func(t *testing.T, w *world) []string {
			w.leave(t, "a")
			delete(w.nodes, "a")
			return []string{"b", "c", "d", "e"}
		}},
		{"a join", func(t *testing.T, w *world) []string {
			w.start(t, "f", weir.Config{})
			w.ready(t, w.names...)
			return w.names
		}},
		{"a split with the owner in the majority", func(t *testing.T, w *world) []string {
			w.network.Split([]string{"a", "b", "c"}, []string{"d", "e"})
			return []string{"a", "b", "c"}
		}},
		{"a split with the owner in the minority", func(t *testing.T, w *world) []string {
			w.network.Split([]string{"a", "b"}, []string{"c", "d", "e"})
			return []string{"a", "b"}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorlds(t, 5, weir.Config{}, func(t *testing.T, w *world) {
				test(t, w, func() []string { return c.act(t, w) })
			})
		})
	}
}

func TestBanOutlivesItsOwner(t *testing.T) {
	inOwnerChanges(t, func(t *testing.T, w *world, act func() (left []string)) {
		ls := w.limiters(t, banning)
		key := keyOf(t, ls["a"])
		begun := time.Now()
		ban(t, ls["b"], key)
		time.Sleep(time.Second)
		left := act()
		ls = w.limiters(t, banning)
		for range 40 {
			requireBanned(t, ls, key, time.Hour-time.Since(begun), left...)
			time.Sleep(time.Second)
		}
	})
}

// Both sides of a split ban a key: the owner before it knows that its side is a minority,
// and the majority because of its own denials. After the heal, the later end counts on
// all nodes, and the next ban has the second length.
func TestBansOfBothSidesAreOneBan(t *testing.T) {
	for _, apart := range []time.Duration{3 * time.Second, 40 * time.Second} {
		t.Run(apart.String(), func(t *testing.T) {
			inWorlds(t, 5, weir.Config{}, func(t *testing.T, w *world) {
				l := banning
				l.Ban.For = weir.BanLengths{time.Minute, 10 * time.Minute, time.Hour}
				ls := w.limiters(t, l)
				key := keyOf(t, ls["a"])
				w.network.Split([]string{"a", "b"}, []string{"c", "d", "e"})
				ban(t, ls["a"], key)
				time.Sleep(apart)
				ban(t, ls["d"], key)
				end := time.Now().Add(time.Minute)
				time.Sleep(time.Second)
				w.network.Heal()
				require.True(t, waitFor(20*time.Second, func() bool { return w.agree(w.names...) }))
				time.Sleep(10 * time.Second) // a node asks the owner again after ten seconds
				for _, name := range w.names {
					d := allowed(t, ls[name], key, 1)
					require.True(t, d.Banned, "%s: %+v", name, d)
					require.InDelta(t, time.Until(end), d.RetryAfter, float64(time.Second), name)
				}
				time.Sleep(time.Until(end.Add(time.Second)))
				for _, name := range w.names {
					require.True(t, allowed(t, ls[name], key, 1).Allowed, name)
					time.Sleep(time.Minute)
				}
				ban(t, ls["e"], key)
				require.InDelta(t, 10*time.Minute, allowed(t, ls["e"], key, 1).RetryAfter, float64(time.Second))
			})
		})
	}
}

func TestBanOutlivesStopOfAllNodes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		shelves := map[string]*shelf{"a": {}, "b": {}}
		cfg := weir.Config{}
		w := nextWorld(t, cfg, shelves)
		l := banning
		l.Ban.For = weir.BanLengths{20 * time.Minute} // shorter than the Per from which a count is durable
		ls := w.limiters(t, l)
		key, begun := keyOf(t, ls["a"]), time.Now()
		ban(t, ls["b"], key)
		w.leaveAll(t)
		time.Sleep(10 * time.Minute)
		w = nextWorld(t, cfg, shelves)
		requireBanned(t, w.limiters(t, l), key, 20*time.Minute-time.Since(begun), w.names...)
	})
}

// bannedKey is a key of TestBansFollowTheirDenialsThroughChanges, with a simple model of its bans.
type bannedKey struct {
	key     string
	used    bool
	denials []time.Time // the last denials that count toward a ban, at most three
	bans    int
	begun   time.Time
	until   time.Time
}

// isUnsure reports whether the ban, or the time for which a denial counts, ends so close to the time now
// that the result of a check depends on the time that its messages take.
func (k *bannedKey) isUnsure(now time.Time, within time.Duration) bool {
	near := func(at time.Time) bool { return now.Sub(at).Abs() < 20*time.Millisecond }
	return near(k.until) || slices.ContainsFunc(k.denials, func(d time.Time) bool { return near(d.Add(within)) })
}

// Checks of random keys are sent to random nodes, while nodes join, leave and crash. Each decision must equal
// that of a model of the key.
func TestBansFollowTheirDenialsThroughChanges(t *testing.T) {
	const keys, asks = 500, 30
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			if seed > 0 {
				testenv.SkipUnlessFull(t, "the first seed")
			}
			inBubble(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				l := weir.Limit{
					Name: "test", Algorithm: weir.FixedWindow, Rate: 1, Per: 24 * time.Hour,
					Ban: weir.Ban{Denials: 3, Within: 10 * time.Minute, For: weir.BanLengths{10 * time.Minute, time.Hour}},
				}
				w := newWorld(t, 5, false)
				ls := w.limiters(t, l)
				all, banned := make([]*bannedKey, keys), 0
				for i := range all {
					all[i] = &bannedKey{key: fmt.Sprint("key ", i)}
				}
				for i := range keys * asks {
					if i%(keys*asks/4) == keys*asks/8 {
						time.Sleep(time.Second) // until all replicas have arrived
						w.change(t, rng)
						ls = w.limiters(t, l)
					}
					k, by := all[rng.IntN(keys)], ls[w.names[rng.IntN(len(w.names))]]
					for k.isUnsure(time.Now(), l.Ban.Within) {
						time.Sleep(50 * time.Millisecond)
					}
					if i > keys*asks*7/8 && rng.IntN(20) == 0 { // after the last change
						require.NoError(t, by.Reset(t.Context(), k.key))
						*k = bannedKey{key: k.key}
					}
					d, now := allowed(t, by, k.key, 1), time.Now()
					switch {
					case now.Before(k.until) && d.Source == weir.Pushback && now.Sub(k.begun) < time.Second:
						require.False(t, d.Allowed, "a node that has cached the denial of the limit repeats it for a second")
					case now.Before(k.until):
						require.True(t, d.Banned && !d.Allowed, "%+v of %s", d, k.key)
						require.InDelta(t, k.until.Sub(now), d.RetryAfter, float64(time.Second))
						banned++
					case !k.used:
						require.True(t, d.Allowed, "%+v of %s", d, k.key)
						k.used = true
					default:
						require.False(t, d.Allowed || d.Banned, "%+v of %s", d, k.key)
						k.denials = slices.DeleteFunc(k.denials, func(d time.Time) bool { return now.Sub(d) >= l.Ban.Within })
						if len(k.denials) < 3 {
							k.denials = append(k.denials, now)
						}
						if len(k.denials) == 3 {
							k.begun, k.until, k.bans = now, now.Add(l.Ban.For[min(k.bans, 1)]), k.bans+1
						}
					}
					time.Sleep(time.Duration(5+rng.IntN(400)) * time.Millisecond)
				}
				require.Greater(t, banned, keys)
			})
		})
	}
}

// change stops a node by a leave or a crash, or stops none. It then starts a new node, and waits until all nodes
// agree.
func (w *world) change(t *testing.T, rng *rand.Rand) {
	at := rng.IntN(len(w.names))
	name := w.names[at]
	switch rng.IntN(3) {
	case 0:
		w.leave(t, name)
		delete(w.nodes, name)
		w.names = slices.Delete(w.names, at, at+1)
	case 1:
		w.network.Host(name).Kill()
		require.NoError(t, w.nodes[name].Close())
		delete(w.nodes, name)
		w.names = slices.Delete(w.names, at, at+1)
		time.Sleep(2 * forget)
	}
	name = fmt.Sprintf("%s%d", name[:1], time.Now().Unix())
	addHosts(w.network, name)
	w.start(t, name, weir.Config{})
	w.ready(t, w.names...)
	time.Sleep(time.Second)
}

// A ban does not make a caller of Wait fail as a full queue does: the caller waits until the
// ban ends or is released.
func TestWaitersOfBannedKeyWaitForItsEnd(t *testing.T) {
	inWorlds(t, 2, weir.Config{}, func(t *testing.T, w *world) {
		l := banning
		l.Algorithm, l.Burst = weir.LeakyBucket, 2
		ls := w.limiters(t, l)
		key := keyOf(t, ls["a"])
		ban(t, ls["b"], key)
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		require.ErrorIs(t, ls["b"].Wait(soon, key, 1), context.DeadlineExceeded)
		require.Less(t, time.Since(begun), time.Second, "the ban ends after the deadline")
		waited := make(chan error, 1)
		go func() { waited <- ls["b"].Wait(t.Context(), key, 1) }()
		time.Sleep(10 * time.Second)
		require.NoError(t, ls["a"].Reset(t.Context(), key))
		time.Sleep(2 * time.Second)
		select {
		case err := <-waited:
			require.NoError(t, err)
		default:
			require.Fail(t, "the ban was released, and the caller still waits")
		}
	})
}
