package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

// Constants of the nodes and the limits of a soak.
const (
	forget  = 5 * time.Second // short, so that no member that died long before is still in the roster
	maxKeys = 50_000          // as in a service in which there are always new keys
	// soakPer is the Per of most limits: short, so that many windows lie between faults.
	soakPer   = time.Second
	soakLimit = 20
	// soakRate is the minimum number of requests per second at which the keys reach their limits.
	soakRate = 1000
	// soakSeenWithin bounds the time until all gateways are connected after a fault.
	soakSeenWithin = time.Minute
	// callTimeout bounds a call to a gateway that runs. The machine may be busy.
	callTimeout = time.Minute
	// soakAftermath is the time before a window in which docs/partitions.md counts
	// changes of connectivity.
	soakAftermath = 2 * time.Second
)

// A soak is a sequence of rounds. Each round uses new keys for the long limits, and ends
// with a time without traffic.
const (
	steadfast = 2 // gateways that restart only during the rotation and the stops, so that they show growth
	// beforeFault is long enough to use up the long limits of a round.
	beforeFault = 2 * time.Second
	mostPause   = 2300 * time.Millisecond // maximum time between a fault and its end
	// calm is the time in each round for which answers without a fault are judged.
	calm = 2 * soakPer
	// rest is the time without traffic between two rounds. It is so long that no window
	// contains units of both rounds, and that all leases expire.
	rest = soakPer + 200*time.Millisecond
)

// Keys and paths of the traffic. Some limits have steadyKeys keys in all rounds. Others have
// one new key or roundKeys new keys in each round.
const (
	steadyKeys = 3
	roundKeys  = 12 // so many that a gateway owns some of them
	givePath   = "/give"
	keptPath   = "/kept"
	keptPart   = 8 // percentage of the requests that go to keptPath, in the rounds in which all gateways stop
	keptTime   = 6 // seconds until the requests have used up a key of keptPath, which is called a kept key below
)

var steadyPaths = [...]string{"/", "/window", "/fixed", "/token", "/leaky"}

// keptRate returns the Rate of the limit of keptPath, at the given number of requests a
// second.
func keptRate(rate int) int64 { return int64(rate * keptPart * keptTime / 100 / roundKeys) }

// soak is a run of rounds, with the results so far.
type soak struct {
	*monitor
	assessment
	random     *mathrand.Rand
	played     map[kind]int
	stops      bool           // set in the last rounds, in which all gateways stop
	grown      []*incarnation // gateways whose figures were taken after the last round without stops
	problems   []string
	endTraffic func()

	// The fields below are about times without faults.
	filled       []int64 // for each round, the percentage of a limit that a client had received before the median denial
	given, taken int     // number of answered requests whose units come back, and how many of these were allowed
}

func newSoak(m *monitor) *soak {
	s := &soak{monitor: m, random: mathrand.New(mathrand.NewPCG(m.options.seed, 0)), played: make(map[kind]int)}
	m.draw = s.drawAccount
	return s
}

// run plays all rounds, and shows them on a terminal.
func (s *soak) run(ctx context.Context, on *screen) (over int64, err error) {
	o := s.options
	on.say(fmt.Sprintf("the same faults again: go run ./cmd/demo -soak %v -nodes %d -rate %d -seed %d", o.soak, o.nodes, o.rate, o.seed))
	defer s.show(ctx, on)()
	return 0, s.play(ctx)
}

// play plays all rounds. Like launch, it must run on the main thread of the demo, because it
// starts gateways.
func (s *soak) play(ctx context.Context) error {
	old, next := s.Secrets[0], newSecret()
	for step, secrets := range [][][]byte{{old, next}, {next, old}, {next}} { // as in docs/rotation.md
		s.say("phase", "rotation of the secret, rollout %d of 3", step+1)
		s.Secrets = secrets
		if err := s.playRound(ctx, s.rollOut); err != nil {
			return err
		}
	}
	over := func(after time.Duration) bool { return time.Since(s.begun) >= after }
	for decks := 0; decks == 0 || !over(s.options.soak); decks++ {
		deck := []kind{reload, leave, kill, freeze, disconnect} // each kind as often as the others
		s.random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		for _, k := range deck {
			if decks > 0 && over(s.options.soak) {
				break
			}
			if err := s.playRound(ctx, func(ctx context.Context) error { return s.strike(ctx, k) }); err != nil {
				return err
			}
		}
	}
	s.stops = true
	for n := 0; n < 2 || !over(s.options.soak*11/10); n++ {
		if err := s.playRound(ctx, func(ctx context.Context) error { return s.stopAll(ctx, n%2 == 1) }); err != nil {
			return err
		}
	}
	return nil
}

func newSecret() []byte {
	secret := make([]byte, 32)
	rand.Read(secret)
	return secret
}

// rollOut restarts all gateways in turn.
func (s *soak) rollOut(ctx context.Context) error {
	for gateway := range s.nodes {
		if err := s.disturb(ctx, leave, gateway, 0); err != nil {
			return err
		}
	}
	return nil
}

// strike plays a fault, and then judges a time without faults.
func (s *soak) strike(ctx context.Context, k kind) error {
	gateway, pause := s.random.IntN(s.nodes), time.Duration(s.random.Int64N(int64(mostPause)))
	if k == leave || k == kill {
		gateway = steadfast + s.random.IntN(s.nodes-steadfast)
	}
	lab.Sleep(ctx, beforeFault)
	if err := s.disturb(ctx, k, gateway, pause); err != nil {
		return err
	}
	lab.Sleep(ctx, soakAftermath+s.per) // then no window of length s.per contains the fault
	from := time.Now().UnixNano()
	lab.Sleep(ctx, calm)
	s.judgeCalm(from)
	return nil
}

// disturb plays a fault of a gateway, ends the fault after the pause, and waits until all
// gateways have seen the end of the fault.
func (s *soak) disturb(ctx context.Context, k kind, gateway int, pause time.Duration) error {
	err := s.do(ctx, step{kind: k, gateway: gateway})
	lab.Sleep(ctx, pause)
	switch {
	case err != nil:
		return err
	case k == leave:
		if err = s.await(ctx, s.isSettled); err == nil {
			err = s.do(ctx, step{kind: start, gateway: gateway})
		}
	case k == kill:
		err = s.do(ctx, step{kind: start, gateway: gateway})
	case k == freeze:
		err = s.do(ctx, step{kind: thaw, gateway: gateway})
	}
	if err != nil {
		return err
	}
	s.played[k]++
	return s.await(ctx, s.isSettled)
}

// playRound plays faults while clients send requests for the keys of the next round. Then it judges
// the answers, drops them, and records the figures of the gateways, except if s.stops is set.
func (s *soak) playRound(ctx context.Context, faults func(context.Context) error) error {
	s.round++
	s.endTraffic = s.startTraffic(ctx)
	err := faults(ctx)
	s.endTraffic()
	lab.Sleep(ctx, rest)
	s.assess(&s.assessment)
	s.tally.closeRound()
	s.fleet.closeRound()
	if err != nil || s.stops {
		return err
	}
	return s.takeFigures(ctx)
}

func (s *soak) drawAccount(random *mathrand.Rand) func() account {
	first, quota := s.round*roundKeys, "/quota"
	if s.stops {
		quota = keptPath
	}
	return func() account {
		switch n := random.IntN(100); {
		case n < 45:
			return account{steadyPaths[n%len(steadyPaths)], random.IntN(steadyKeys)}
		case n < 65:
			return account{"/hot", first}
		case n < 75:
			return account{"/new", random.IntN(math.MaxInt32)}
		case n < 80:
			return account{givePath, first}
		case n < 87:
			return account{"/pair", random.IntN(steadyKeys)}
		case n < 87+keptPart:
			return account{quota, first + random.IntN(roundKeys)}
		}
		return account{"/changed", random.IntN(steadyKeys)}
	}
}

// closeRound drops the records that only the verdict on a round needs. All gateways must be
// up.
func (f *fleet) closeRound() {
	f.trim()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.happened = nil
	for _, inc := range f.all {
		inc.down, inc.still = nil, nil
	}
}

// takeFigures records the figures of the first gateways, which seldom restart (steadfast).
func (s *soak) takeFigures(ctx context.Context) error {
	for _, inc := range s.current[:s.nodes] {
		inc.client.CloseIdleConnections() // their number is random
	}
	lab.Sleep(ctx, drain)
	s.grown = slices.Clone(s.current[:steadfast])
	for _, inc := range s.grown {
		var f Figures
		if err := inc.process.CallWithin(ctx, callTimeout, "Gateway.Measure", 0, &f); err != nil {
			return fmt.Errorf("gateway %d does not report its figures: %w", inc.gateway+1, err)
		}
		inc.series = append(inc.series, f)
	}
	return nil
}

const (
	// mostSkew is the largest skew of a clock, much smaller than the Per of durable
	// limits, so that no window ends when the clock steps.
	mostSkew     = time.Minute
	usedUpWithin = 30 * time.Second
)

// stopAll stops all gateways amid traffic, and starts all with their snapshots and other
// clocks. Then it waits until the kept keys are used up, for at most usedUpWithin.
func (s *soak) stopAll(ctx context.Context, orderly bool) error {
	lab.Sleep(ctx, beforeFault+time.Duration(s.random.Int64N(int64(beforeFault))))
	s.Skew = time.Duration(s.random.Int64N(int64(2*mostSkew))) - mostSkew
	s.say("stop", "all gateways stop, in order: %v, and start with clocks that are %+.1f s ahead", orderly, s.Skew.Seconds())
	s.played[stopAll]++
	if err := s.endAll(ctx, orderly); err != nil {
		return err
	}
	s.endTraffic() // docs/snapshots.md: no requests until all gateways are up
	s.mu.Lock()
	for gateway := range s.nodes {
		s.place(gateway)
	}
	s.mu.Unlock()
	for _, inc := range s.current[:s.nodes] {
		if err := s.launch(inc); err != nil {
			return err
		}
	}
	if err := s.await(ctx, s.isSettled); err != nil {
		return err
	}
	from := time.Now().UnixNano()
	s.endTraffic = s.startTraffic(ctx)
	for end := time.Now().Add(usedUpWithin); ctx.Err() == nil && len(s.usedUp(from)) < roundKeys && time.Now().Before(end); {
		lab.Sleep(ctx, drain)
	}
	s.endTraffic()
	if ctx.Err() == nil {
		s.judgeStop(from, orderly)
	}
	return nil
}

// endAll ends all gateways at once, and records until when their snapshots contain all
// admissions.
func (s *soak) endAll(ctx context.Context, orderly bool) error {
	s.mu.Lock()
	now, all := time.Now().UnixNano(), slices.Clone(s.current[:s.nodes])
	s.happened = append(s.happened, happening{step: step{kind: stopAll}, from: now, seenBy: never})
	for _, inc := range all {
		inc.condition, inc.ready = leaving, false
		if !orderly {
			inc.condition, inc.down = killed, append(inc.down, lab.Between(now, never))
		}
	}
	s.mu.Unlock()
	end := (*lab.Service).Kill
	if orderly {
		lab.Sleep(ctx, drain)
		end = (*lab.Service).Leave
	}
	var errs []error
	for _, inc := range all {
		errs = append(errs, end(inc.process))
	}
	for _, inc := range all {
		err := inc.process.Await(2 * leaveWithin)
		<-inc.over
		if orderly {
			errs = append(errs, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved = savedUntil(all, orderly)
	return errors.Join(errs...)
}

// savedUntil returns the time until which all admissions are in the snapshots of gateways
// that have ended: the time at which the oldest of their last snapshots began. The time
// is zero if a gateway has no snapshot, and math.MaxInt64 after an orderly stop.
func savedUntil(all []*incarnation, orderly bool) int64 {
	if orderly {
		return math.MaxInt64
	}
	return slices.MinFunc(all, func(a, b *incarnation) int { return cmp.Compare(a.report.Saved, b.report.Saved) }).report.Saved
}

// usedUp returns the kept keys with a denial after a time.
func (s *soak) usedUp(since int64) map[account]bool {
	denied := make(map[account]bool)
	for _, a := range s.tally.answersSince(since) {
		if a.path == keptPath && a.err == nil && !a.allowed {
			denied[a.account] = true
		}
	}
	return denied
}

// judgeStop judges kept keys after a start. After an orderly stop, all units of a used-up
// key were admitted. After a crash, a snapshot may have a unit whose answer was lost.
func (s *soak) judgeStop(since int64, orderly bool) {
	usedUp, admitted := s.usedUp(since), make(map[account]int64)
	if len(usedUp) == 0 {
		s.problems = append(s.problems, "no kept key was used up after a stop of all gateways, so that lost counts would not show: use a higher -rate")
	}
	for _, a := range s.tally.answers {
		if a.allowed || a.down || elsewhereAt(a.at) {
			admitted[a.account]++
		}
	}
	for key := range usedUp {
		if n := admitted[key]; orderly && n < s.rules.kept {
			s.problems = append(s.problems, fmt.Sprintf("%v was denied after an orderly stop of all gateways, although only %d of %d units had been granted: some units were counted twice", key, n, s.rules.kept))
		}
	}
}

// judgeCalm judges the denials since a time, and the answers of givePath since a Per before.
// The last fault must have ended soakAftermath and a Per before that time.
func (s *soak) judgeCalm(from int64) {
	answers := s.tally.answersSince(from - int64(s.per))
	var filled []int64
	for _, denied := range answers {
		if denied.path != steadyPaths[0] || denied.allowed || denied.err != nil || denied.check.From < from {
			continue
		}
		units, before := int64(0), lab.Between(denied.check.From-int64(s.per), denied.check.To)
		for _, a := range answers {
			if a.allowed && a.account == denied.account && before.Touches(a.check) {
				units++
			}
		}
		filled = append(filled, 100*units/s.limit)
	}
	if len(filled) > 0 {
		s.filled = append(s.filled, median(filled))
	}
	for _, a := range answers {
		if a.path == givePath && a.err == nil {
			s.given++
			if a.allowed {
				s.taken++
			}
		}
	}
}

// leastFilled is the minimum percentage of a limit that a client receives in the Per
// before a denial, in the median. It is also the minimum percentage of requests that are
// allowed among those whose units come back.
const leastFilled = 90

// soakMeans names the windows that a guarantee judges.
var soakMeans = [guarantees]string{"without a fault", "around starts and leaves", "around kills", "around freezes, and checks that timed out", "around the end of connections", "around stops of all gateways"}

// judge judges all rounds, once all gateways have ended.
func (s *soak) judge(int64) *findings {
	v := s.newFindings(11, "The fullest windows, and their bounds:")
	v.broken = append(v.broken, s.problems...)
	sum := v.clients(s.tally, &s.seen)
	var played []string
	for k := range kinds {
		if n := s.played[kind(k)]; n > 0 {
			played = append(played, fmt.Sprintf("%v %d", kind(k), n))
		}
	}
	v.sentences = []string{fmt.Sprintf("%d gateways answered %s requests in %d rounds; %d failed and %d stalled.", s.nodes, number(sum.requests), s.round, sum.errors, sum.stalls),
		fmt.Sprintf("Faults: %s; %d connections ended.", strings.Join(played, ", "), s.cut)}
	v.checks(&s.assessment)
	v.add(true, "lag", short(s.lag), "the maximum lag of copies")
	if len(s.filled) == 0 {
		v.broken = append(v.broken, "no client was denied in the times without a fault: let it run longer, or use a higher -rate")
	} else {
		filled := median(s.filled)
		v.add(filled >= leastFilled, "filled", fmt.Sprintf("%d%%", filled), "of its limit was granted to a client in the %v before a denial, in the median round, without a fault; at least %d%%", s.per, leastFilled)
		v.add(100*s.taken >= leastFilled*s.given, "given", percent(s.taken, s.given), "of the requests whose units come back were allowed, without a fault; at least %d%%", leastFilled)
	}
	for gateway, inc := range s.grown {
		v.growth(gateway, inc.series)
	}
	for g, f := range s.found {
		if f.Windows > 0 {
			v.windows = append(v.windows, newClaim(f.Held <= f.Most, guarantee(g).String(), fmt.Sprintf("%d of %d", f.Held, f.Most), "in %s windows %s; this is %s", number(f.Windows), soakMeans[g], f.Of))
		}
	}
	return v
}
