package clustertests

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
)

var seeded = weir.Config{Seed: []byte("a seed of sixteen bytes or more")}

// delivered is more than the time that a message without a response takes.
const delivered = 2 * time.Millisecond

func reserve(t *testing.T, l *weir.Limiter, key string, estimate int64) *weir.Reservation {
	t.Helper()
	v, err := l.Reserve(t.Context(), key, estimate)
	require.NoError(t, err)
	require.True(t, v.Decision().Allowed)
	require.Equal(t, estimate, v.Units())
	return v
}

func opened(t *testing.T, l *weir.Limiter, key, text string) *weir.Reservation {
	t.Helper()
	v, err := l.OpenReservation(key, text)
	require.NoError(t, err)
	return v
}

func TestReservationCostsOneCheckAndOneMessage(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		ls := w.limiters(t, weir.Limit{Name: "tokens", Rate: 1000, Per: time.Hour})
		key := keyOf(t, ls["a"])
		served := func() (all uint64) {
			for _, n := range w.nodes {
				all += n.Stats().Served + n.Stats().Passed
			}
			return all
		}
		for name, c := range map[string]struct {
			by       string
			actual   int64
			messages uint64
			gone     bool // the client has disconnected, so the context of its request is done
		}{
			"given back":              {"b", 10, 2, false},
			"debited":                 {"b", 150, 2, false},
			"as estimated":            {"b", 100, 1, false},
			"given back at the owner": {"a", 10, 0, false},
			"debited at the owner":    {"a", 150, 0, false},
			"given back for nobody":   {"b", 10, 2, true},
		} {
			was, left, begun := served(), remaining(t, ls["a"], key), time.Now()
			v := reserve(t, ls[c.by], key, 100)
			reserved := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			if c.gone {
				cancel()
			}
			require.NoError(t, v.Settle(ctx, c.actual))
			cancel()
			require.Equal(t, reserved, time.Now(), "%s: Settle does not wait", name)
			time.Sleep(delivered)
			require.Equal(t, left-c.actual, remaining(t, ls["a"], key), name)
			require.Equal(t, c.messages, served()-was, name)
			require.LessOrEqual(t, reserved.Sub(begun), 3*latency, name)
		}
	})
}

// Units of a lease have no receipt, so a reservation does not use a lease.
func TestReservationUsesNoLease(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		ls := w.limiters(t, weir.Limit{Name: "tokens", Algorithm: weir.FixedWindow, Rate: 1_000_000, Per: time.Hour})
		key := keyOf(t, ls["a"])
		for leased := false; !leased; {
			d := allowed(t, ls["b"], key, 1)
			leased = d.Source == weir.Leased
		}
		v := reserve(t, ls["b"], key, 10)
		require.Equal(t, weir.Forwarded, v.Decision().Source)
		require.NoError(t, v.Cancel(t.Context()))
	})
}

func TestLateSettlementChangesNoOtherWindow(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		for algorithm, over := range map[weir.Algorithm]time.Duration{
			weir.FixedWindow: 10 * time.Second, weir.SlidingLog: 10 * time.Second, weir.SlidingWindow: 20 * time.Second,
		} {
			ls := w.limiters(t, weir.Limit{Name: algorithm.String(), Algorithm: algorithm, Rate: 100, Per: 10 * time.Second})
			key := keyOf(t, ls["a"])
			less, more := reserve(t, ls["b"], key, 20), reserve(t, ls["b"], key, 20)
			require.WithinDuration(t, time.Now().Add(time.Minute), less.Expires(), time.Second)
			time.Sleep(over + time.Second)
			later := reserve(t, ls["a"], key, 60)
			require.NoError(t, less.Settle(t.Context(), 5))
			require.NoError(t, more.Settle(t.Context(), 50))
			time.Sleep(delivered)
			require.EqualValues(t, 40, remaining(t, ls["a"], key), algorithm)
			time.Sleep(time.Minute)
			require.ErrorIs(t, later.Settle(t.Context(), 1), weir.ErrExpired)
		}
	})
}

func TestResetEndsEarlierReservations(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		for _, algorithm := range algorithms {
			ls := w.limiters(t, weir.Limit{Name: algorithm.String(), Algorithm: algorithm, Rate: 100, Per: time.Hour})
			key := keyOf(t, ls["a"])
			less, more := reserve(t, ls["b"], key, 20), reserve(t, ls["b"], key, 20)
			time.Sleep(delivered)
			require.NoError(t, ls["c"].Reset(t.Context(), key))
			reserve(t, ls["b"], key, 30)
			require.NoError(t, less.Settle(t.Context(), 5))
			require.NoError(t, more.Settle(t.Context(), 50))
			time.Sleep(delivered)
			require.EqualValues(t, 70, remaining(t, ls["a"], key), algorithm)
		}
	})
}

// A hand-over moves the windows of a count as well. These windows begin at other times on
// the clock of the new owner.
func TestReservationsAreExactAcrossHandOver(t *testing.T) {
	inWorlds(t, 3, seeded, func(t *testing.T, w *world) {
		type one struct {
			l        map[string]*weir.Limiter
			v        *weir.Reservation
			key      string
			actual   int64
			by, text string
		}
		var all []one
		for _, algorithm := range algorithms {
			ls := w.limiters(t, weir.Limit{Name: algorithm.String(), Algorithm: algorithm, Rate: 1000, Per: 24 * time.Hour})
			for i, key := range keysOf(ls["a"], 12) {
				by := []string{"a", "b", "c"}[i%3]
				reserve(t, ls[by], key, 50) // and never settle it
				v := reserve(t, ls[by], key, 100)
				reserve(t, ls["c"], key, 50)
				all = append(all, one{ls, v, key, []int64{0, 40, 130, 200}[i%4], by, ""})
			}
		}
		time.Sleep(300 * time.Millisecond)
		for i := range all {
			if all[i].by == "a" {
				all[i].text = all[i].v.Text()
			}
		}
		w.leave(t, "a")
		time.Sleep(time.Second)
		for _, r := range all {
			if r.text != "" {
				r.v = opened(t, r.l["b"], r.key, r.text)
			}
			require.NoError(t, r.v.Settle(t.Context(), r.actual))
		}
		time.Sleep(time.Second)
		for _, r := range all {
			for _, name := range []string{"b", "c"} {
				require.Equal(t, 900-r.actual, remaining(t, r.l[name], r.key), "%s of %s by %s", r.key, r.l[name].Limit().Name, r.by)
			}
		}
	})
}

// A refund may be lost until the other nodes detect the crash. The owner may have executed the
// refund, so a second refund could return the units twice. A debit is not lost.
func TestReservationsOutliveTheirOwner(t *testing.T) {
	inWorlds(t, 3, seeded, func(t *testing.T, w *world) {
		type one struct {
			l      *weir.Limiter
			v      *weir.Reservation
			key    string
			actual int64
		}
		var all []one
		for _, algorithm := range algorithms {
			ls := w.limiters(t, weir.Limit{Name: algorithm.String(), Algorithm: algorithm, Rate: 1000, Per: 24 * time.Hour})
			for i, key := range keysOf(ls["a"], 8) {
				all = append(all, one{ls["b"], reserve(t, ls["b"], key, 100), key, []int64{0, 40, 130, 200}[i%4]})
			}
		}
		time.Sleep(300 * time.Millisecond) // the copies are there
		w.network.Host("a").Kill()
		known := func(i int) bool { return i%8 >= 4 }
		for _, after := range []bool{false, true} {
			for i, r := range all {
				if known(i) == after {
					require.NoError(t, r.v.Settle(t.Context(), r.actual))
				}
			}
			time.Sleep(5 * time.Second)
		}
		for i, r := range all {
			left, about := remaining(t, r.l, r.key), fmt.Sprint(r.key, " of ", r.l.Limit().Name)
			if known(i) || r.actual >= 100 {
				require.Equal(t, 1000-r.actual, left, about)
			} else {
				require.Contains(t, []int64{1000 - r.actual, 900}, left, about)
			}
		}
	})
}

func TestCarriedReservationIsSettledOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorldOf(t, 3, false, seeded)
		ls := w.limiters(t, weir.Limit{Name: "tokens", Algorithm: weir.FixedWindow, Rate: 1000, Per: time.Minute})
		texts := make(map[string]string)
		for i := range 20 {
			key := fmt.Sprint("key ", i)
			v := reserve(t, ls["a"], key, 100)
			text := v.Text()
			texts[key] = text
			var (
				all      sync.WaitGroup
				settled  atomic.Int32
				together = []*weir.Reservation{v}
			)
			for i := range 9 {
				together = append(together, opened(t, ls[w.names[i%3]], key, text))
			}
			for _, v := range together {
				all.Go(func() {
					switch err := v.Settle(t.Context(), 30); {
					case err == nil:
						settled.Add(1)
					case !errors.Is(err, weir.ErrSettled):
						t.Error(err)
					}
				})
			}
			all.Wait()
			require.EqualValues(t, 1, settled.Load())
			require.Empty(t, v.Text(), "a settled reservation has no text")
			time.Sleep(delivered)
			require.EqualValues(t, 970, remaining(t, ls["b"], key))
		}
		time.Sleep(50 * time.Second)
		for key, text := range texts {
			require.ErrorIs(t, opened(t, ls["b"], key, text).Cancel(t.Context()), weir.ErrSettled)
		}
		time.Sleep(10 * time.Second)
		for key, text := range texts {
			_, err := ls["c"].OpenReservation(key, text)
			require.ErrorIs(t, err, weir.ErrExpired)
		}
	})
}

func TestTextBelongsToKeyLimitAndCluster(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorldOf(t, 2, false, seeded)
		ls := w.limiters(t, weir.Limit{Name: "tokens", Rate: 1000, Per: time.Hour})
		others := w.limiters(t, weir.Limit{Name: "bytes", Rate: 1000, Per: time.Hour})
		v := reserve(t, ls["a"], "alice", 100)
		text := v.Text()
		alone, err := weir.Start(t.Context(), weir.Config{Cluster: w.network.Host("z").Cluster(cluster.Config{Name: "z", Logger: quiet}), Seed: []byte("another seed of some bytes"), Logger: quiet})
		require.NoError(t, err)
		defer alone.Close()
		foreign, err := alone.Limiter(ls["a"].Limit())
		require.NoError(t, err)
		for name, open := range map[string]func() (*weir.Reservation, error){
			"another key":     func() (*weir.Reservation, error) { return ls["b"].OpenReservation("bob", text) },
			"another limit":   func() (*weir.Reservation, error) { return others["b"].OpenReservation("alice", text) },
			"another cluster": func() (*weir.Reservation, error) { return foreign.OpenReservation("alice", text) },
			"truncated":       func() (*weir.Reservation, error) { return ls["b"].OpenReservation("alice", text[:len(text)-1]) },
			"none":            func() (*weir.Reservation, error) { return ls["b"].OpenReservation("alice", "") },
			"changed":         func() (*weir.Reservation, error) { return ls["b"].OpenReservation("alice", "AQ"+text[:len(text)-2]) },
		} {
			_, err := open()
			require.ErrorIs(t, err, weir.ErrInvalid, name)
		}
		require.EqualValues(t, 900, remaining(t, ls["a"], "alice"))
		require.ErrorIs(t, v.Settle(t.Context(), -1), weir.ErrInvalid)
		require.NoError(t, v.Settle(t.Context(), 1), "refused settlements do not use the reservation up")
		denied, err := ls["a"].Reserve(t.Context(), "alice", 1000)
		require.NoError(t, err)
		require.False(t, denied.Decision().Allowed)
		require.ErrorIs(t, denied.Cancel(t.Context()), weir.ErrInvalid)
		require.Empty(t, denied.Text())
		require.Zero(t, denied.Expires())
		_, err = ls["a"].Reserve(t.Context(), "alice", 1001)
		require.ErrorIs(t, err, weir.ErrInvalid)
	})
}

func TestMinorityCannotSettleReservationWithText(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorldOf(t, 3, false, seeded)
		ls := w.limiters(t, weir.Limit{Name: "tokens", Rate: 1000, Per: time.Hour})
		for range 5 { // several reservations, because each marker may have another owner
			key := keyOf(t, ls["a"])
			left := remaining(t, ls["a"], key)
			v := reserve(t, ls["c"], key, 100)
			require.NotEmpty(t, v.Text())
			time.Sleep(300 * time.Millisecond)
			w.network.Split([]string{"a", "b"}, []string{"c"})
			time.Sleep(5 * time.Second)
			require.ErrorIs(t, v.Settle(t.Context(), 30), weir.ErrUnavailable)
			w.network.Heal()
			w.ready(t, w.names...)
			time.Sleep(time.Second)
			require.NoError(t, v.Settle(t.Context(), 30))
			time.Sleep(delivered)
			require.Equal(t, left-30, remaining(t, ls["a"], key))
		}
	})
}

func TestStatsIncludeReservations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorldOf(t, 2, false, seeded)
		ls := w.limiters(t, weir.Limit{Name: "tokens", Rate: 1000, Per: 2 * time.Minute})
		key := keyOf(t, ls["a"])
		require.NoError(t, reserve(t, ls["a"], key, 100).Settle(t.Context(), 30))
		require.NoError(t, reserve(t, ls["a"], key, 100).Settle(t.Context(), 140))
		require.NoError(t, reserve(t, ls["a"], key, 100).Cancel(t.Context()))
		reserve(t, ls["a"], key, 100)
		text := reserve(t, ls["a"], key, 100).Text()
		require.NoError(t, opened(t, ls["b"], key, text).Settle(t.Context(), 100))
		want := weir.ReservationStats{Made: 5, Settled: 2, Canceled: 1, Carried: 1, UnitsReturned: 170, UnitsDebited: 40}
		require.Equal(t, want, w.nodes["a"].Stats().Reservations)
		require.Equal(t, weir.ReservationStats{Settled: 1}, w.nodes["b"].Stats().Reservations)
		time.Sleep(5 * time.Minute)
		want.Unsettled = 1
		require.Equal(t, want, w.nodes["a"].Stats().Reservations)
	})
}

// The numbers of a bucket change between an estimate and its settlement. The settlement returns
// the part of the estimate above the cost, to within one unit, because the level of a bucket is
// rounded up.
func TestEstimateIsReturnedAcrossChangeOfRate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorldOf(t, 3, false, seeded)
		for _, algorithm := range []weir.Algorithm{weir.TokenBucket, weir.LeakyBucket} {
			for i, c := range []struct {
				from, to  int64 // Rate, in units per hour
				reserved  int64
				taken     int64 // the number of units that are taken after the change
				actual    int64
				settledBy string // the node that opens the text, or empty to settle without a text
				late      bool   // whether the owner has the new numbers before the reserving node
			}{
				{1000, 500, 450, 0, 0, "", false},
				{1000, 500, 450, 0, 0, "c", false},
				{1000, 500, 450, 40, 0, "", false},
				{1000, 500, 450, 40, 100, "c", false},
				{1000, 500, 400, 40, 450, "c", false},
				{500, 1000, 450, 0, 0, "", false},
				{500, 1000, 450, 300, 50, "c", false},
				{1000, 500, 450, 0, 0, "", true},
				{1000, 500, 450, 0, 0, "c", true},
			} {
				name := fmt.Sprint(algorithm, " ", i)
				before := weir.Limit{Name: name, Algorithm: algorithm, Rate: c.from, Per: time.Hour, Version: 1}
				after := before
				after.Rate, after.Version = c.to, 2
				old, new := w.limiters(t, before), w.limiters(t, after)
				key := keyOf(t, old["a"])
				if c.late {
					require.Equal(t, 1, ask(t, new, key, 1, "a"))
				}
				v := reserve(t, old["b"], key, c.reserved)
				require.EqualValues(t, c.taken, ask(t, new, key, int(c.taken), "a"))
				remaining(t, new["a"], key)
				if c.settledBy != "" {
					v = opened(t, new[c.settledBy], key, v.Text())
				}
				require.NoError(t, v.Settle(t.Context(), c.actual))
				time.Sleep(delivered)
				require.InDelta(t, c.to-c.taken-c.actual, remaining(t, new["a"], key), 1, "%v %+v", algorithm, c)
			}
		}
	})
}

// If a node has old numbers, the receipt that it gets has the numbers of the owner. The node does
// not return units that have already drained by the numbers of the owner.
func TestCancelWithOldNumbersReturnsNoDrainedUnits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorldOf(t, 3, false, seeded)
		before := weir.Limit{Name: "tokens", Algorithm: weir.TokenBucket, Rate: 1000, Per: time.Minute, Version: 1}
		after := before
		after.Rate, after.Version = 500, 2
		old, new := w.limiters(t, before), w.limiters(t, after)
		key := keyOf(t, old["a"])
		require.Equal(t, 1, ask(t, new, key, 1, "a"))
		v := reserve(t, old["b"], key, 450)
		time.Sleep(30 * time.Second) // 250 drain
		require.Equal(t, 250, ask(t, new, key, 250, "a"))
		require.NoError(t, v.Cancel(t.Context()))
		time.Sleep(delivered)
		require.InDelta(t, 250, remaining(t, new["a"], key), 1)
	})
}

// In this test, the owner has crashed, and the clock of the node that opens the text is wrong by
// ten minutes. The member that decides then relies on the age of the estimate.
func TestTextIsSettledWithSkewedClock(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		t.Run(skew.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newWorldOf(t, 2, false, seeded)
				skewed := seeded
				skewed.Now = func() time.Time { return time.Now().Add(skew) }
				w.start(t, "c", skewed)
				w.ready(t, w.names...)
				time.Sleep(time.Minute) // until the epoch of the cluster has begun
				type one struct {
					l    map[string]*weir.Limiter
					key  string
					text string
				}
				var all []one
				for _, algorithm := range algorithms {
					ls := w.limiters(t, weir.Limit{Name: algorithm.String(), Algorithm: algorithm, Rate: 100, Per: 30 * time.Minute, NoLeases: true})
					for _, key := range keysOf(ls["a"], 3) {
						v := reserve(t, ls["b"], key, 20)
						all = append(all, one{ls, key, v.Text()})
					}
				}
				time.Sleep(300 * time.Millisecond)
				w.network.Host("a").Kill()
				time.Sleep(2 * time.Second)
				for _, r := range all {
					require.NoError(t, opened(t, r.l["c"], r.key, r.text).Settle(t.Context(), 10))
				}
				time.Sleep(10 * time.Millisecond)
				for _, r := range all {
					require.InDelta(t, 90, remaining(t, r.l["b"], r.key), 0.5, r.l["b"].Limit().Name)
				}
			})
		})
	}
}

// The marker of a reservation survives a stop of all nodes if the units of its estimate do.
func TestSettledTextStaysSettledAfterStop(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]weir.Limit{
		"durable by choice":   {Per: 30 * time.Minute, Durable: weir.Durable},
		"durable by calendar": {Calendar: weir.Day},
		"durable by Per":      {Per: 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				limit.Name, limit.Algorithm, limit.Rate = "tokens", weir.FixedWindow, 1000
				shelves := map[string]*shelf{"a": {}, "b": {}, "c": {}}
				w := nextWorld(t, seeded, shelves)
				ls := w.limiters(t, limit)
				keys := []string{"k1", "k2", "k3", "k4", "k5"}
				texts := make(map[string]string)
				for _, key := range keys {
					require.Equal(t, 300, ask(t, ls, key, 300, "a"))
					v := reserve(t, ls["a"], key, 200)
					texts[key] = v.Text()
					require.NoError(t, opened(t, ls["b"], key, texts[key]).Cancel(t.Context()))
				}
				time.Sleep(time.Second)
				w.leaveAll(t)
				w = nextWorld(t, seeded, shelves)
				ls = w.limiters(t, limit)
				for _, key := range keys {
					require.ErrorIs(t, opened(t, ls["c"], key, texts[key]).Cancel(t.Context()), weir.ErrSettled, key)
					time.Sleep(delivered)
					require.EqualValues(t, 700, remaining(t, ls["a"], key))
				}
			})
		})
	}
}

// If no units of a SlidingWindow remain, the count does not show when its window began. The
// member that decides after a crash of the owner must still find the window of the estimate.
func TestLastUnitsOfSlidingWindowReturnAfterCrash(t *testing.T) {
	t.Parallel()
	for _, into := range []time.Duration{3 * time.Second, 15 * time.Second, 40 * time.Second} {
		t.Run(into.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newWorldOf(t, 3, false, seeded)
				ls := w.limiters(t, weir.Limit{Name: "tokens", Algorithm: weir.SlidingWindow, Rate: 100, Per: time.Minute, NoLeases: true})
				keys := keysOf(ls["a"], 2)
				key, like := keys[0], keys[1]
				requireAdmits(t, 60, ls, keys, 60, "b")
				time.Sleep(time.Minute + into)
				reserve(t, ls["b"], like, 1) // to begin its window
				v := reserve(t, ls["b"], key, remaining(t, ls["b"], key))
				time.Sleep(300 * time.Millisecond) // the copies are there
				w.network.Host("a").Kill()
				time.Sleep(5 * time.Second)
				require.NoError(t, v.Settle(t.Context(), 1))
				time.Sleep(delivered)
				require.Equal(t, remaining(t, ls["b"], like), remaining(t, ls["b"], key))
			})
		})
	}
}
