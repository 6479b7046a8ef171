package clustertests

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
)

var (
	schedules = flag.Int("schedules", 0, "how many schedules of holds and reservations to play; as many as the run has by itself if 0")
	firstSeed = flag.Uint64("first", 1, "the seed of the first schedule of holds and reservations")
)

// The test plays some schedules, and the command `make schedules` plays 10,000.
func TestSchedulesOfHoldsAndReservationsAreExact(t *testing.T) {
	t.Parallel()
	n := *schedules
	if n == 0 {
		n = testenv.PickRace(30, testenv.PickFull(t, 60, 600))
	}
	for part, nodes := range []int{3, 4, 5} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var w *world
				for i := range uint64(n) {
					seed := *firstSeed + i
					if seed%3 != uint64(part) {
						continue
					}
					if w == nil {
						w = newWorldOf(t, nodes, false, seeded)
					}
					playSchedule(t, w, seed)
				}
				if w == nil {
					return
				}
				time.Sleep(time.Second) // until the copies of released holds are released too
				for _, name := range w.names {
					s := w.nodes[name].Stats()
					require.Zero(t, s.Holds.Held+s.Holds.Known+int(s.Holds.Lost), name)
					require.Zero(t, s.Reservations.Unsettled, name)
				}
			})
		})
	}
}

// account is the exact count of a key, as a single limiter would have it. The operations of a
// step run at the same time, so a decision is compared with the sum of all operations of the
// step.
type account struct {
	limit, used                int64
	granted, returned, debited int64 // units of the current step
	denied                     []denial
	denials                    map[string][]denial // keyed by the node that was denied
}

type denial struct {
	by    string
	units int64
	at    time.Time
	again bool // whether the node repeated an earlier denial
}

func (a *account) answer(by string, units int64, d weir.Decision) {
	if d.Allowed {
		a.granted += units
		return
	}
	x := denial{by, units, time.Now(), d.Source == weir.Pushback}
	if a.denied = append(a.denied, x); !x.again {
		a.denials[by] = append(a.denials[by], x)
	}
}

// judge compares the decisions of a step with the account, and then adds the units of the
// step to the account.
func (a *account) judge(t *testing.T, replay string) {
	t.Helper()
	if a.granted > 0 {
		require.LessOrEqual(t, a.used-a.returned+a.granted, a.limit, "%s: granted above the limit", replay)
	}
	for _, x := range a.denied {
		fits := a.used+a.granted+a.debited+x.units <= a.limit
		for _, before := range a.denials[x.by] {
			if x.again && before.units <= x.units && x.at.Sub(before.at) <= time.Second {
				fits = false
			}
		}
		require.False(t, fits, "%s: %d units denied beside %d of %d", replay, x.units, a.used, a.limit)
	}
	a.used += a.granted + a.debited - a.returned
	a.granted, a.returned, a.debited, a.denied = 0, 0, 0, nil
}

// holdSchedule is a schedule that is drawn from a seed. It has two counts: the nodes hold and
// release units of the first one, and reserve, settle and cancel units of the second one. Up to
// three operations run at the same time.
type holdSchedule struct {
	t        *testing.T
	w        *world
	random   *rand.Rand
	key      string
	replay   string                   // the command that plays the schedule again
	inFlight map[string]*weir.Limiter // keyed by node, for held
	tokens   map[string]*weir.Limiter // keyed by node, for spent

	mu          sync.Mutex // guards the fields below while operations run
	held, spent account
	holds       []ending
	open        []*weir.Reservation
}

// ending is a hold, and the function that releases the hold.
type ending struct {
	units   int64
	release func()
}

func playSchedule(t *testing.T, w *world, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0x686f6c6473))
	account := func(limit int64) account { return account{limit: limit, denials: make(map[string][]denial)} }
	s := &holdSchedule{
		t: t, w: w, random: random, key: fmt.Sprint("schedule ", seed),
		replay: fmt.Sprint("go test ./internal/clustertests -run SchedulesOfHolds -schedules 1 -first ", seed),
		held:   account(1 + random.Int64N(20)), spent: account(1000),
	}
	s.inFlight = w.limiters(t, weir.Limit{Name: fmt.Sprint("in flight ", s.held.limit), Algorithm: weir.InFlight, Rate: s.held.limit})
	algorithm := algorithms[random.IntN(len(algorithms))]
	s.tokens = w.limiters(t, weir.Limit{Name: algorithm.String(), Algorithm: algorithm, Rate: s.spent.limit, Per: 24 * time.Hour})
	for step := 0; s.step(step < 25); step++ {
		time.Sleep(delivered)
		if random.IntN(3) == 0 {
			s.look(s.node())
		}
		if random.IntN(50) == 0 {
			time.Sleep(time.Second) // so that the nodes renew their holds
		}
	}
	require.Zero(t, s.held.used, s.replay)
	for _, name := range w.names {
		s.look(name)
	}
}

func (s *holdSchedule) node() string { return s.w.names[s.random.IntN(len(s.w.names))] }

// step runs up to three operations at the same time. It reports false if there are none, because
// all holds and reservations have ended and asks is false.
func (s *holdSchedule) step(asks bool) bool {
	var together []func()
	for range 1 + s.random.IntN(3) {
		if f := s.draw(asks); f != nil {
			together = append(together, f)
		}
	}
	var all sync.WaitGroup
	for _, f := range together {
		all.Go(f)
	}
	all.Wait()
	s.held.judge(s.t, s.replay)
	s.spent.judge(s.t, s.replay)
	return len(together) > 0
}

// draw returns the next operation, or nil if there is none.
func (s *holdSchedule) draw(asks bool) func() {
	kind := s.random.IntN(5)
	switch {
	case asks && kind < 2:
		return s.hold()
	case asks && kind == 2:
		return s.reserve()
	case len(s.holds) > 0 && (kind%2 == 0 || len(s.open) == 0):
		return s.release()
	case len(s.open) > 0:
		return s.settle()
	case asks:
		return s.hold()
	}
	return nil
}

func (s *holdSchedule) hold() func() {
	units := 1 + s.random.Int64N(max(1, s.held.limit/3))
	by, client, releasedBy := s.node(), s.random.IntN(4) == 0, s.node()
	return func() {
		var (
			d       weir.Decision
			release func()
		)
		if client {
			text, got, err := s.inFlight[by].HoldFor(s.t.Context(), s.key, units, time.Hour)
			require.NoError(s.t, err, s.replay)
			d, release = got, func() {
				require.NoError(s.t, s.inFlight[releasedBy].ReleaseHold(s.t.Context(), s.key, text), s.replay)
			}
		} else {
			h, err := s.inFlight[by].Hold(s.t.Context(), s.key, units)
			require.NoError(s.t, err, s.replay)
			d, release = h.Decision(), h.Release
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.held.answer(by, units, d); d.Allowed {
			s.holds = append(s.holds, ending{units, release})
		}
	}
}

func (s *holdSchedule) release() func() {
	i := s.random.IntN(len(s.holds))
	h := s.holds[i]
	s.holds = slices.Delete(s.holds, i, i+1)
	s.held.returned += h.units
	return h.release
}

func (s *holdSchedule) reserve() func() {
	by, estimate := s.node(), 1+s.random.Int64N(s.spent.limit/4)
	return func() {
		v, err := s.tokens[by].Reserve(s.t.Context(), s.key, estimate)
		require.NoError(s.t, err, s.replay)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.spent.answer(by, estimate, v.Decision()); v.Decision().Allowed {
			s.open = append(s.open, v)
		}
	}
}

// settle returns a function that settles or cancels a reservation. Some of the reservations are
// opened from their text first, on any node.
func (s *holdSchedule) settle() func() {
	i := s.random.IntN(len(s.open))
	v := s.open[i]
	s.open = slices.Delete(s.open, i, i+1)
	if s.random.IntN(4) == 0 {
		v = opened(s.t, s.tokens[s.node()], s.key, v.Text())
	}
	actual := s.random.Int64N(v.Units() + v.Units()/2 + 1)
	end := func() error { return v.Settle(s.t.Context(), actual) }
	if s.random.IntN(3) == 0 {
		actual = 0
		end = func() error { return v.Cancel(s.t.Context()) }
	}
	s.spent.returned += max(0, v.Units()-actual)
	s.spent.debited += max(0, actual-v.Units())
	return func() {
		require.NoError(s.t, end(), s.replay)
		require.ErrorIs(s.t, v.Settle(s.t.Context(), 1), weir.ErrSettled, s.replay)
	}
}

// look checks that the number of units that remain on a node is the same as in the accounts.
func (s *holdSchedule) look(by string) {
	require.Equal(s.t, s.held.limit-s.held.used, remaining(s.t, s.inFlight[by], s.key), "%s: units left to hold", s.replay)
	require.Equal(s.t, max(0, s.spent.limit-s.spent.used), remaining(s.t, s.tokens[by], s.key), "%s: units left to spend", s.replay)
}
