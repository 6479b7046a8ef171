package main

import (
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
)

// soakScene returns a soak of three gateways without processes.
func soakScene() *soak {
	f, t := scene()
	o, _ := parse([]string{"-soak", "1m", "-nodes", "3"}, io.Discard)
	s := newSoak(newMonitor(o, nil))
	copy(s.current, f.current)
	s.fleet.all, t.fleet = f.all, s.fleet
	s.tally = t
	return s
}

// spread returns n admissions of a millisecond each, beginning at a time.
func spread(n int, gap, from time.Duration) (all []span) {
	for i := range n {
		at := int64(from) + int64(i)*int64(gap)
		all = append(all, lab.Between(at, at+int64(time.Millisecond)))
	}
	return all
}

func TestBoundAfterFaultMatchesGuarantee(t *testing.T) {
	struck := lab.Between(int64(time.Minute), int64(time.Minute+time.Second))
	for name, test := range map[string]struct {
		guarantee guarantee
		durable   weir.Durability
		most      int // maximum number of units in an hour, for a limit of 100
	}{
		"no fault":                            {healthy, weir.Durable, 100},
		"a start: a unit, and a round trip's": {deployed, weir.Durable, 102},
		"a kill: a sixteenth":                 {crashed, weir.Durable, 106},
		"a freeze: 2L":                        {timedOut, weir.Durable, 200},
		"broken connections: below 1.5(1+2)L": {severed, weir.Durable, 449},
		"a stop: 2L":                          {restarted, weir.NotDurable, 200},
		"a stop: the units of no snapshot":    {restarted, weir.Durable, 110},
	} {
		t.Run(name, func(t *testing.T) {
			limit := weir.Limit{Algorithm: weir.SlidingLog, Rate: 100, Per: time.Hour, Durable: test.durable}
			during := new(occasions)
			during[test.guarantee] = []span{struck}
			for more := range 2 {
				admissions := append(spread(40, time.Millisecond, time.Second), spread(10, time.Millisecond, 50*time.Second)...) // no snapshot has the second admissions
				admissions = append(admissions, spread(test.most+more-50, time.Millisecond, time.Minute+2*time.Second)...)
				var found fullest
				found.add("k", admissions, &limit, during, &circumstances{roundTrip: 10 * time.Millisecond, long: true, saved: 30 * second})
				require.Equal(t, int64(test.most), found[test.guarantee].Most)
				require.Equal(t, int64(test.most+more), found[test.guarantee].Held)
			}
		})
	}
}

// The windows of a key that is used in one round are longer than the round.
func TestLongFixedWindowHoldsItsRate(t *testing.T) {
	var found fullest
	found.add("k", spread(10, time.Millisecond, time.Second), &weir.Limit{Algorithm: weir.FixedWindow, Rate: 10, Per: 24 * time.Hour}, new(occasions), new(circumstances))
	require.Equal(t, int64(10), found[healthy].Most)
}

func TestFaultAffectsWindowsForTwoSeconds(t *testing.T) {
	for after, want := range map[time.Duration]guarantee{2*time.Second - 20*time.Millisecond: timedOut, 2*time.Second + time.Millisecond: healthy} {
		s := soakScene()
		s.happens(freeze, 10*second, 11*second)
		s.tally.admits(soakLimit+1, own, "", 11*second+int64(after))
		s.assess(&s.assessment)
		require.Equal(t, int64(soakLimit+1), s.found[want].Held, "%v", after)
	}
}

func TestCrashBoundUsesLongestEarlierRoundTrip(t *testing.T) {
	for took, most := range map[time.Duration]int64{time.Millisecond: 21, 400 * time.Millisecond: 40} {
		s := soakScene()
		for range 1000 {
			s.tally.roundTrips(time.Millisecond)
		}
		s.tally.add(answer{to: s.current[0], account: account{path: "/window"}, sent: 9 * second, done: 10 * second, check: lab.Between(9*second, 9*second+int64(took)), at: asked})
		s.happens(kill, 10*second, 10*second+5)
		s.tally.admits(19, own, "", 10*second-second/5)
		s.tally.admits(1, own, "", 10*second+second/2)
		s.assess(&s.assessment)
		require.Equal(t, most, s.found[crashed].Most, "%v", took)
	}
}

func TestClosedRoundKeepsSumsAndDropsAnswers(t *testing.T) {
	s := soakScene()
	for round := range int64(3) {
		s.tally.admits(soakLimit+int(round%2), own, "", round*10*second)
		s.tally.add(answer{to: s.current[0], sent: 0, done: int64(stallBound) + 1 + round, check: lab.Between(0, 1)})
		s.happens(reload, 0, 1)
		s.assess(&s.assessment)
		s.tally.closeRound()
		s.fleet.closeRound()
		require.Empty(t, s.tally.answers)
		require.Empty(t, s.happened)
	}
	require.Equal(t, standing{requests: 3*soakLimit + 1 + 3, stalls: 3}, s.tally.standing())
	require.Equal(t, stallBound+3, s.tally.slowest())
	require.Equal(t, 3*soakLimit+1, s.seen.allowed)
	failures := strings.Join(s.judge(0).failures(), "\n")
	require.Contains(t, failures, "healthy: 21 of 20, in 3 windows without a fault; this is client-001 of /")
	require.Contains(t, failures, "stalls: 3")
}

func TestKilledGatewaysLoseUnitsSpentAfterOldestSnapshot(t *testing.T) {
	all := soakScene().current[:3]
	for i, saved := range []int64{8, 7, 9} {
		all[i].report.Saved = saved
	}
	require.EqualValues(t, 7, savedUntil(all, false))
	require.EqualValues(t, int64(never), savedUntil(all, true))
	all[2].report.Saved = 0
	require.Zero(t, savedUntil(all, false))
}

func TestStopIsJudgedByUsedUpKeys(t *testing.T) {
	for name, test := range map[string]struct {
		lost    int64 // lost units of the last key
		at      place
		denied  int
		orderly bool
		broken  string
	}{
		"all units, then denied":     {0, own, roundKeys, true, ""},
		"denied early":               {1, own, roundKeys, true, "some units were counted twice"},
		"one unit without the owner": {1, stoodIn, roundKeys, true, ""},
		"denied early after a crash": {1, own, roundKeys, false, ""},
		"not used up":                {0, own, 0, true, "no kept key was used up"},
	} {
		t.Run(name, func(t *testing.T) {
			s := soakScene()
			for key := range roundKeys {
				add := func(at int64, by place, allowed bool) {
					s.tally.add(answer{to: s.current[0], account: account{keptPath, key}, sent: at, done: at + 1, check: lab.Between(at, at+1), at: by, allowed: allowed})
				}
				for i := range s.rules.kept {
					if key < roundKeys-1 || i >= test.lost {
						add(second, own, true)
					} else {
						add(second, test.at, false)
					}
				}
				if key < test.denied {
					add(20*second, own, false)
				}
			}
			s.judgeStop(10*second, test.orderly)
			if test.broken == "" {
				require.Empty(t, s.problems)
				return
			}
			require.Len(t, s.problems, 1)
			require.Contains(t, s.problems[0], test.broken)
		})
	}
}

func TestClientReceivesItsLimitBeforeDenial(t *testing.T) {
	for admitted, broken := range map[int]bool{soakLimit: false, soakLimit / 2: true} {
		s := soakScene()
		s.tally.admits(soakLimit, own, "", 8*second)
		s.tally.admits(admitted, own, "", 9*second+second/2)
		s.tally.denies(own, "", 10*second+second/4)
		s.tally.add(answer{to: s.current[0], account: account{path: givePath}, done: 10*second + 2, allowed: !broken})
		s.judgeCalm(10 * second)
		failures := strings.Join(s.judge(0).failures(), "\n")
		require.Equal(t, broken, strings.Contains(failures, "filled: 50%"), failures)
		require.Equal(t, broken, strings.Contains(failures, "given: 0%"), failures)
	}
	require.Contains(t, strings.Join(soakScene().judge(0).failures(), "\n"), "no client was denied in the times without a fault")
}

func TestEveryAccountOfSoakHasLimit(t *testing.T) {
	s := soakScene()
	limits := s.rules.limits()
	for _, s.stops = range []bool{false, true} {
		drawn := make(map[string]bool)
		draw := s.drawAccount(rand.New(rand.NewPCG(1, 1)))
		for range 10_000 {
			of := draw()
			drawn[of.path] = true
			require.Equal(t, of.path != givePath, limits[of.path] != nil, of.path)
		}
		require.Len(t, drawn, 11)
	}
	require.EqualValues(t, 60, limits[keptPath].Rate)
	require.EqualValues(t, 25, limits["/changed"].Rate)
	require.Contains(t, string(s.rules.text(1, hourly)), "rate: 20, per")
}

func TestSoakDrawsMissingSeed(t *testing.T) {
	for args, want := range map[string]uint64{"-soak 1m -seed 7": 7, "": 1} {
		o, err := parse(strings.Fields(args), io.Discard)
		require.NoError(t, err)
		require.Equal(t, want, o.seed)
	}
	o, err := parse([]string{"-soak", "1m"}, io.Discard)
	require.NoError(t, err)
	require.NotZero(t, o.seed)
	require.Equal(t, 5, o.nodes)
}

func TestSoakTableFitsTerminal(t *testing.T) {
	s := soakScene()
	text := strings.Join(drawn(s.view(time.Now()), 79, 60), "\n")
	require.Contains(t, text, "a soak of 3 gateways under 1500 requests a second")
	require.NotContains(t, text, "busiest client")
}
