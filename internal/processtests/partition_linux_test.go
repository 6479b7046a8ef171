package processtests

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
)

// The tests in this file check the guarantees for splits, and for cut and slow links. Each node
// is a process in its own network namespace.
//
// The exact figures assume that no check times out. If the machine pauses a process for longer
// than Timeout, only the bound of 2L applies. The tests then check this bound, and check the
// exact figures again with new keys.

const (
	// patientTimeout is longer than most pauses of a process on a busy machine. If a pause is
	// longer, a check may time out, and the test checks the exact figures once more.
	patientTimeout = 100 * time.Millisecond
	// noticedWithin is the time in which all nodes react to a change of connectivity.
	noticedWithin = 2 * time.Second
	// attempts is the maximum number of times that a test checks the exact figures.
	attempts = 6
)

// logs returns a SlidingLog limit for each partition policy. The window is longer than the test.
func logs(rate int64) (limits []weir.Limit) {
	for policy := weir.MajorityShare; policy <= weir.FailClosed; policy++ {
		limits = append(limits, weir.Limit{
			Name: policy.String(), Algorithm: weir.SlidingLog,
			Rate: rate, Per: time.Hour, Partition: policy,
		})
	}
	return limits
}

// runAll starts a node on each host, and waits until all nodes are connected to each other and have
// authority over the keys that they own. It also waits until no connection is new: before that, a check
// may take twice Timeout, although no process is late.
func (l *lan) runAll(timeout time.Duration) (nodes []*remote) {
	l.t.Helper()
	for i := range l.hosts {
		nodes = append(nodes, l.run(i, timeout))
	}
	begun := time.Now()
	require.True(l.t, lab.Await(l.t.Context(), 20*time.Second, func() bool {
		for _, r := range l.orderAll(nodes, Order{}) {
			if r.Members != l.hosts || !r.Connected || !r.Settled || r.New {
				return false
			}
		}
		return true
	}), "the nodes have not found each other")
	l.t.Logf("%d nodes have found each other after %v", l.hosts, rounded(time.Since(begun)))
	return nodes
}

// orderAll sends the order to all nodes at the same time, and returns their reports.
func (l *lan) orderAll(nodes []*remote, o Order) (reports []Report) {
	l.t.Helper()
	var begun []func() Report
	for _, n := range nodes {
		begun = append(begun, n.begin(l.t, o))
	}
	for _, await := range begun {
		reports = append(reports, await())
	}
	return reports
}

// owned returns a question for each limit and each of the given hosts, in this order. The node
// on the host owns the key of the question.
func (l *lan) owned(n *remote, limits []weir.Limit, keys string, hosts ...int) (questions []question) {
	l.t.Helper()
	for _, limit := range limits {
		var candidates []question
		for i := range 20 * l.hosts {
			candidates = append(candidates, question{limit, fmt.Sprint(keys, " ", i)})
		}
		tallies := n.do(l.t, Order{Questions: candidates}).Tallies
		for _, host := range hosts {
			at := slices.IndexFunc(tallies, func(t tally) bool { return t.Owner == l.endpoint(host) })
			require.GreaterOrEqual(l.t, at, 0, "%s owns none of %d keys", l.endpoint(host), len(candidates))
			questions = append(questions, candidates[at])
		}
	}
	return questions
}

// longestCheck returns the longest time of a check, without the lateness of its process
// during the check. A member that reports a delay extends the check by up to timeout; the
// argument latest is the lateness of the latest process. The timer that measures the
// lateness of a process and the timer that ends the check may be late at different times,
// so the lateness of this process, the argument own, counts once.
func longestCheck(timeout, latest, own time.Duration) time.Duration {
	const work = 10 * time.Millisecond // time of the check itself on a shared machine
	return timeout + min(timeout, latest) + own + work
}

// requireAnswers reports an error if a check failed or took too long. Slowest does not include the lateness
// of the process during a check.
func requireAnswers(t *testing.T, timeout time.Duration, reports []Report) {
	t.Helper()
	var latest time.Duration
	for _, r := range reports {
		latest = max(latest, r.Late)
	}
	for i, r := range reports {
		for _, tally := range r.Tallies {
			require.Empty(t, tally.Errors, "checks of node %d", i)
		}
		require.LessOrEqual(t, r.Slowest, longestCheck(timeout, latest, r.Late), "node %d, which was woken up to %v late; the latest of all was %v late", i, r.Late, latest)
	}
}

// slowest formats the maximum of Slowest and the maximum of Late.
func slowest(reports []Report) string {
	var took, late time.Duration
	for _, r := range reports {
		took, late = max(took, r.Slowest), max(late, r.Late)
	}
	return fmt.Sprintf("slowest check %v, processes woken up to %v late", rounded(took), rounded(late))
}

func calm(reports []Report) bool {
	return !slices.ContainsFunc(reports, func(r Report) bool { return !r.Calm })
}

// relaysWereLate reports whether a stand-in decided itself, and a process was late by at
// least a quarter of Timeout. A stand-in that asks the owner on behalf of other members
// has this time for the answer.
func relaysWereLate(reports []Report, questions int) bool {
	late := slices.ContainsFunc(reports, func(r Report) bool { return r.Late >= patientTimeout/4 })
	for i := range questions {
		if late && decidedBy(reports, i)[weir.StandIn] > 0 {
			return true
		}
	}
	return false
}

// admitted returns the number of units that all nodes admitted for a question.
func admitted(reports []Report, question int) (sum int64) {
	for _, r := range reports {
		sum += r.Tallies[question].Admitted
	}
	return sum
}

// lost returns the number of requests to other members that failed.
func lost(reports []Report) (sum int64) {
	for _, r := range reports {
		sum += r.Lost
	}
	return sum
}

// decidedBy returns the number of checks of a question by source.
func decidedBy(reports []Report, question int) map[weir.Source]int {
	sum := make(map[weir.Source]int)
	for _, r := range reports {
		for source, n := range r.Tallies[question].Sources {
			sum[source] += n
		}
	}
	return sum
}

// ways is like decidedBy, but counts the checks that a node decided by a pushback or a lease
// under the source of its other decisions. If the other decisions of the node do not all have
// the same source, ways ignores these checks.
func ways(reports []Report, question int) map[weir.Source]int {
	sum := make(map[weir.Source]int)
	for _, r := range reports {
		sources := maps.Clone(r.Tallies[question].Sources)
		remembered := sources[weir.Pushback] + sources[weir.Leased]
		delete(sources, weir.Pushback)
		delete(sources, weir.Leased)
		for source, n := range sources {
			if len(sources) == 1 {
				n += remembered
			}
			sum[source] += n
		}
	}
	return sum
}

func rounded(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// The subtests run in parallel, because they mostly wait. Tests that keep the machine busy must
// not run at the same time, because they would make checks time out.
func TestLimitHoldsOnRealNetworks(t *testing.T) {
	wantsTheMachine(t)
	for _, test := range []struct {
		promise string
		keeps   func(t *testing.T)
	}{
		{"limit on a slow and lossy link", testSlowLink},
		{"guarantees in a split", testSplit},
		{"limit on a link that loses one direction", testOneWayLink},
	} {
		t.Run(test.promise, func(t *testing.T) {
			t.Parallel()
			test.keeps(t)
		})
	}
}

func testSplit(t *testing.T) {
	const (
		rate     = 101 // not divisible by the number of nodes, so that shares are fractions
		majority = 3
		minority = 2
	)
	l := newLAN(t, majority+minority)
	nodes := l.runAll(patientTimeout)
	owners := []int{0, majority} // a node on each side
	limits := logs(rate)

	// The checks of these keys start before the split and continue until after the heal.
	fair := limits[weir.FairShare : weir.FairShare+1]
	throughout := Order{Questions: l.owned(nodes[0], fair, "throughout", owners...), Rounds: 600, Pace: 10 * time.Millisecond}
	var through []func() Report
	for _, n := range nodes {
		through = append(through, n.begin(t, throughout))
	}
	time.Sleep(300 * time.Millisecond)
	l.split(majority)
	t.Logf("split %d from %d by %s", majority, minority, l.means())

	var asked Order
	var reports []Report
	for attempt := 1; ; attempt++ {
		require.LessOrEqual(t, attempt, attempts, "the machine pauses processes for longer than three quarters of %v at each attempt", patientTimeout)
		time.Sleep(noticedWithin)
		asked = Order{Questions: l.owned(nodes[0], limits, fmt.Sprint("attempt ", attempt), owners...), Rounds: 70, Pace: 10 * time.Millisecond}
		reports = l.orderAll(nodes, asked)
		requireAnswers(t, patientTimeout, reports)
		exact := calm(reports)
		for i, q := range asked.Questions {
			above, below := admitted(reports[:majority], i), admitted(reports[majority:], i)
			t.Logf("%s, owner %s: %d of %d admitted by the majority %v, %d by the minority %v",
				q.Limit.Name, reports[0].Tallies[i].Owner, above, rate, decidedBy(reports[:majority], i), below, decidedBy(reports[majority:], i))
			if !exact {
				if q.Limit.Partition != weir.FailOpen {
					require.LessOrEqual(t, above+below, int64(2*rate))
				}
				continue
			}
			switch q.Limit.Partition {
			case weir.MajorityShare:
				require.EqualValues(t, rate, above, "the full limit for a majority")
				require.EqualValues(t, rate*minority/(majority+minority), below, "its share for a minority")
				require.Less(t, 2*(above+below), int64(3*rate))
			case weir.FairShare:
				require.EqualValues(t, rate, above+below, "the sides' shares are the limit")
				require.Positive(t, below)
				require.Greater(t, above, below)
			case weir.FailOpen:
				require.EqualValues(t, rate, above, "the limit for each side")
				require.EqualValues(t, rate, below, "the limit for each side")
			case weir.FailClosed:
				require.EqualValues(t, rate, above, "the full limit for a majority")
				require.Zero(t, below, "a denial for a minority")
			}
		}
		if exact {
			break
		}
		t.Log("a check timed out: the test repeats its checks with fresh keys")
	}
	t.Logf("in the split: %s", slowest(reports))

	healed := time.Now()
	l.heal()
	heard, counted, lag := l.awaitCounts(nodes, owners, asked.Questions, reports)
	t.Logf("healed: all members are connected after %v; the owners have counted all admitted units after %v, %v after they are connected to all members",
		rounded(heard.Sub(healed)), rounded(counted.Sub(healed)), rounded(lag))
	// The time is 200 ms on an idle machine.
	require.LessOrEqual(t, counted.Sub(heard), time.Second)

	reports = l.orderAll(nodes, Order{Questions: asked.Questions, Rounds: 20, Pace: 5 * time.Millisecond})
	requireAnswers(t, patientTimeout, reports)
	for i := range asked.Questions {
		if calm(reports) {
			require.Zero(t, admitted(reports, i), "the limit was spent in the split")
		}
	}

	reports = nil
	for _, await := range through {
		reports = append(reports, await())
	}
	requireAnswers(t, patientTimeout, reports)
	for i := range throughout.Questions {
		t.Logf("through the cut and the heal: %d of %d admitted with %v %v, %d answers lost", admitted(reports, i), rate, weir.FairShare, decidedBy(reports, i), lost(reports))
		const changes = 2
		require.LessOrEqual(t, admitted(reports, i), int64((1+changes)*rate))
		// If the answer of the owner is lost, the unit is spent, although the caller does not get it.
		require.GreaterOrEqual(t, admitted(reports, i)+lost(reports), int64(rate))
	}
	t.Logf("through the cut and the heal: %s", slowest(reports))
}

// awaitCounts waits until all members are connected to each other and the owners have counted all admitted
// units. It returns the times of both events. It also returns lag, the maximum time between the moment when
// an owner is connected to all members and the moment when it has counted all units. The owners own the
// keys of the questions in turn.
func (l *lan) awaitCounts(nodes []*remote, owners []int, questions []question, reports []Report) (heard, counted time.Time, lag time.Duration) {
	l.t.Helper()
	type owner struct {
		asked          Order // the order that reads the counts of the owner
		used           []int64
		heard, counted time.Time
	}
	all := make([]owner, len(nodes))
	for i, q := range questions {
		o := &all[owners[i%len(owners)]]
		o.asked.Questions = append(o.asked.Questions, q)
		o.used = append(o.used, min(admitted(reports, i), 2*q.Limit.Rate)) // a debt is at most the limit
	}
	var missing string
	done := lab.Await(l.t.Context(), 20*time.Second, func() bool {
		hear, count := true, true
		for i, n := range nodes {
			o, r := &all[i], n.do(l.t, all[i].asked)
			hear = hear && r.Connected
			if r.Direct && o.heard.IsZero() {
				o.heard = time.Now()
			}
			told := true
			for k, q := range o.asked.Questions {
				if used := r.Tallies[k].Used; used != o.used[k] {
					told = false
					missing = fmt.Sprintf("%s has counted %d of %d with %s", l.endpoint(i), used, o.used[k], q.Limit.Name)
				}
			}
			if told && o.counted.IsZero() {
				o.counted = time.Now()
			}
			count = count && !o.counted.IsZero()
		}
		if hear && heard.IsZero() {
			heard = time.Now()
		}
		if count && counted.IsZero() {
			counted = time.Now()
		}
		return !heard.IsZero() && !counted.IsZero()
	})
	require.True(l.t, done, "not within 20 s: all members are connected: %v; all units are counted: %v: %s", !heard.IsZero(), !counted.IsZero(), missing)
	for _, i := range owners {
		lag = max(lag, all[i].counted.Sub(all[i].heard))
	}
	return heard, counted, lag
}

// If a link is down in one direction, neither of its two hosts sends checks over the link. Both hosts
// stay on the same side, because the third host relays their checks.
func testOneWayLink(t *testing.T) {
	const hosts, rate = 3, 101
	l := newLAN(t, hosts)
	nodes := l.runAll(patientTimeout)
	l.cut(1, 0)
	t.Logf("host 1 gets nothing from host 0, by %s", l.means())
	limits := logs(rate)
	for attempt := 1; ; attempt++ {
		require.LessOrEqual(t, attempt, attempts, "the machine pauses processes for longer than three quarters of %v at each attempt", patientTimeout)
		time.Sleep(noticedWithin)
		asked := Order{Questions: l.owned(nodes[2], limits, fmt.Sprint("attempt ", attempt), 0, 1, 2), Rounds: 70, Pace: 10 * time.Millisecond}
		reports := l.orderAll(nodes, asked)
		requireAnswers(t, patientTimeout, reports)
		exact := calm(reports) && !relaysWereLate(reports, len(asked.Questions))
		for i, q := range asked.Questions {
			most := int64(rate)
			if !exact {
				most *= 2
				if q.Limit.Partition == weir.FailOpen {
					most *= hosts
				}
			}
			decided, relayed := decidedBy(reports, i), 0
			t.Logf("%s, owner %s: %d of %d admitted %v", q.Limit.Name, reports[0].Tallies[i].Owner, admitted(reports, i), rate, decided)
			require.LessOrEqual(t, admitted(reports, i), most)
			if !exact {
				continue
			}
			if i%hosts != 2 { // one end of the link owns the key, and host 2 relays for the other end
				relayed = asked.Rounds
			}
			require.EqualValues(t, rate, admitted(reports, i))
			require.Equal(t, map[weir.Source]int{weir.Owner: asked.Rounds, weir.Forwarded: 2*asked.Rounds - relayed, weir.Relayed: relayed},
				withNone(ways(reports, i), weir.Relayed), "the owner alone decides: %v", decided)
		}
		if exact {
			t.Log(slowest(reports))
			return
		}
		t.Log("a check timed out: the test repeats its checks with fresh keys")
	}
}

// withNone returns a copy of m that has an entry for source, even if its value is 0.
func withNone(m map[weir.Source]int, source weir.Source) map[weir.Source]int {
	m = maps.Clone(m)
	m[source] += 0
	return m
}

// TCP sends a lost frame again after a delay. A check waits for the answer until Timeout,
// and then its node asks another member, or decides within its share. The owner grants at
// most the limit. In the end, the count of the owner includes the units that other nodes
// granted.
func testSlowLink(t *testing.T) {
	for _, timeout := range []time.Duration{defaultTimeout, 2 * time.Second} {
		t.Run(fmt.Sprint("Timeout ", timeout), func(t *testing.T) {
			t.Parallel()
			const hosts, slow, rate = 3, 2, 201
			l := newLAN(t, hosts)
			t.Logf("host %d has a slow and lossy link, by %s: %v ± %v and %v %% of frames lost", slow, l.slow(slow), linkDelay, linkJitter, 100*linkLoss)
			nodes := l.runAll(timeout)
			owners := []int{0, slow}
			limits := slices.DeleteFunc(logs(rate), func(l weir.Limit) bool { return l.Partition == weir.FailOpen })
			// The checks continue until all unused leases and all pushbacks have expired, so that
			// the nodes send requests to the owner again.
			asked := Order{Questions: l.owned(nodes[0], limits, "key", owners...), Rounds: 300, Pace: 10 * time.Millisecond}
			reports := l.orderAll(nodes, asked)
			requireAnswers(t, timeout, reports)
			t.Logf("%s, no check timed out: %v", slowest(reports), calm(reports))
			for i, q := range asked.Questions {
				var granted int64
				for _, r := range reports {
					granted += r.Tallies[i].Granted
				}
				t.Logf("%s, owner %s: %d of %d admitted, %d by the owner %v", q.Limit.Name, reports[0].Tallies[i].Owner, admitted(reports, i), rate, granted, decidedBy(reports, i))
				require.LessOrEqual(t, granted, int64(rate))
				require.LessOrEqual(t, admitted(reports, i), int64(2*rate))
				if calm(reports) {
					require.EqualValues(t, rate, admitted(reports, i))
				}
			}
			require.True(t, lab.Await(t.Context(), 10*time.Second, func() bool {
				for i, q := range asked.Questions {
					r := nodes[owners[i%2]].do(t, Order{Questions: []question{q}})
					if r.Tallies[0].Used < min(admitted(reports, i), 2*rate) {
						return false
					}
				}
				return true
			}), "the owners have counted what was granted without them")
		})
	}
}
