package clustertests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
)

const (
	// ttlSlack is the time for which a hold may still be counted and renewed after the
	// end of its ttl. The ttl is counted from the answer to the last renewal.
	ttlSlack = 20 * time.Millisecond
	// faultSpread is how long after a crash, a freeze or a thaw a request may fail, or may be
	// denied because the deciding member does not know all holds yet.
	faultSpread = 3 * time.Second
	// releaseSpread is the longest time for which members may count the units of a released
	// hold, if a member is frozen or missing.
	releaseSpread = 12 * time.Second
	// waiterSpread is the longest time for which a waiter waits while enough units are free.
	waiterSpread = 300 * time.Millisecond
)

// disruption is the kind of faults that a schedule has.
type disruption int

const (
	deploys disruption = iota // nodes join, leave, and are replaced in order
	crashes                   // a node dies or is closed without Leave, and may be replaced
	freezes                   // a node is frozen, and thaws
	splits                    // the nodes are split in two sides, and heal
)

func (d disruption) String() string { return [...]string{"deploys", "crashes", "freezes", "splits"}[d] }

// The test plays some schedules, and the command `make schedules` plays 10,000.
func TestSchedulesOfHoldsOfClientsKeepBounds(t *testing.T) {
	t.Parallel()
	n := *schedules
	if n == 0 {
		n = testenv.PickRace(testenv.PickFull(t, 24, 240), 8)
	}
	for part := range uint64(3) {
		t.Run(fmt.Sprint(3+part, " nodes"), func(t *testing.T) {
			t.Parallel()
			for i := range uint64(n) {
				seed := *firstSeed + i
				if seed%3 != part {
					continue
				}
				t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
					playBubble(t, func(t *testing.T) { playClients(t, 3+int(part), seed) })
				})
			}
		})
	}
}

// clientHold is a hold of a client, as the client knows it.
type clientHold struct {
	key      *clientKey
	number   int
	text     string
	units    int64     // units that the client has
	most     int64     // maximum number of units that members count until shrunk has been delivered
	shrunk   time.Time // when a shrink was answered
	asked    time.Time
	answered time.Time
	until    time.Time // end of the hold for the client: the ttl after the last renewal was sent
	latest   time.Time // latest end of a ttl that began with an answer, over all answers
	counted  time.Time // latest end of the hold for members: the ttl after the last renewal was answered
	ending   bool      // the release of the hold was sent, or the client was told that the hold is over
	released time.Time // when a release was answered; zero before
	busy     bool      // a request for this hold has not been answered yet
}

// isHeld reports whether the client has the hold.
func (h *clientHold) isHeld(at time.Time) bool {
	return h.text != "" && !h.ending && at.Before(h.until)
}

// never is a time after the end of all schedules.
var never = time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC)

// mayCount reports whether members may count the hold at a time after the time since. The argument
// spread is the time until all members have received the release of the hold.
func (h *clientHold) mayCount(since time.Time, spread time.Duration) bool {
	return since.Before(h.counted.Add(ttlSlack)) && (h.released.IsZero() || since.Before(h.released.Add(spread)))
}

// clientKey is a key of an InFlight limit.
type clientKey struct {
	limit   weir.Limit
	name    string
	holds   []*clientHold            // a client does not have a hold whose text is empty
	asking  map[*clientHold]struct{} // requests for holds that have not been answered yet
	waiters map[*clientHold]struct{}
	waited  time.Time // when the last waiter ended
	split   int64     // the units that were held at the time of the split
}

// clientNode is a node of a schedule.
type clientNode struct {
	*weir.Node
	usable bool // clients send requests to the node
	frozen bool // the answers of the node are lost
	users  int  // requests under way
}

// clientSchedule is a schedule that a seed draws: clients hold, renew and release units of some
// keys at any node, while nodes are deployed, crash, freeze or split.
type clientSchedule struct {
	t       *testing.T
	w       *world
	random  *rand.Rand
	replay  string
	kind    disruption
	keys    []*clientKey
	waiting sync.WaitGroup

	mu        sync.Mutex
	nodes     map[string]*clientNode
	names     []string
	dead      int       // members that crashed
	active    bool      // a fault is under way
	last      time.Time // when the last fault ended
	splitAt   time.Time
	numbers   int
	trace     []string
	wrong     string
	began     time.Time
	disrupted chan struct{} // closed once there are no more faults
}

func playClients(t *testing.T, nodes int, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0x636c69656e7473))
	s := &clientSchedule{
		t: t, w: newWorldOf(t, nodes, false, seeded), random: random,
		replay: fmt.Sprint("go test ./internal/clustertests -run SchedulesOfHoldsOfClients -schedules 1 -first ", seed),
		nodes:  make(map[string]*clientNode), began: time.Now(), disrupted: make(chan struct{}),
	}
	s.kind = []disruption{deploys, deploys, deploys, crashes, crashes, freezes, freezes, splits}[random.IntN(8)]
	policies := []weir.PartitionPolicy{weir.MajorityShare, weir.MajorityShare, weir.FailClosed, weir.FairShare}
	if s.kind == crashes { // with FairShare a dead member's share is missing
		policies = policies[:3]
	}
	for i := range 1 + random.IntN(4) {
		rate := 1 + random.Int64N(20)
		policy := policies[random.IntN(len(policies))]
		s.keys = append(s.keys, &clientKey{
			limit: weir.Limit{Name: fmt.Sprint(policy, " ", rate), Algorithm: weir.InFlight, Rate: rate, Partition: policy},
			name:  fmt.Sprint("schedule ", seed, " key ", i), asking: make(map[*clientHold]struct{}), waiters: make(map[*clientHold]struct{}),
		})
	}
	for _, name := range s.w.names {
		s.addNode(name, s.w.nodes[name])
	}
	s.log("%v, %d nodes", s.kind, nodes)
	go s.disrupt(rand.New(rand.NewPCG(seed, 0x6661756c7473)))
	s.play()
	s.waiting.Wait()
	if s.wrong == "" {
		s.finish()
	}
	if s.wrong != "" {
		<-s.disrupted
		t.Fatalf("%s\n%s\n%s", s.wrong, s.replay, strings.Join(s.trace, "\n"))
	}
	for _, name := range s.names {
		require.NoError(t, s.nodes[name].Close())
	}
}

// play sends the requests of the clients, in at least 30 steps, until there are no more faults or a client
// has found something wrong.
func (s *clientSchedule) play() {
	for step := 0; s.wrong == ""; step++ {
		select {
		case <-s.disrupted:
			if step >= 30 {
				return
			}
		default:
		}
		var together sync.WaitGroup
		for range 1 + s.random.IntN(3) {
			if f := s.draw(); f != nil {
				together.Go(f)
			}
		}
		together.Wait()
		switch s.random.IntN(8) {
		case 0:
			time.Sleep(time.Duration(s.random.Int64N(int64(2 * time.Second))))
		case 1, 2:
			time.Sleep(time.Duration(s.random.Int64N(int64(300 * time.Millisecond))))
		default:
			time.Sleep(delivered)
		}
	}
}

// draw returns the next request of a client, or nil if there is none.
func (s *clientSchedule) draw() func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := s.keys[s.random.IntN(len(s.keys))]
	kind := s.random.IntN(16)
	switch {
	case kind < 6:
		return s.drawHold(key, false)
	case kind < 7:
		return s.drawHold(key, true)
	case kind < 8:
		return s.drawPeek(key)
	}
	h := key.draw(s.random)
	if h == nil {
		return s.drawHold(key, false)
	}
	by, random := s.drawNode(), s.random.IntN(8)
	h.busy = true
	switch {
	case kind < 13:
		ttl := drawTTL(s.random)
		return func() { s.renew(h, by, ttl) }
	default:
		return func() {
			s.release(h, by)
			if random == 0 {
				s.release(h, by) // a second release has no effect
			}
		}
	}
}

// draw returns a random hold that is not busy, in most cases a hold that its client still has.
// It returns nil if it finds no such hold in four attempts.
func (k *clientKey) draw(random *rand.Rand) *clientHold {
	for range 4 {
		if len(k.holds) == 0 {
			return nil
		}
		h := k.holds[random.IntN(len(k.holds))]
		if !h.busy && h.text != "" && (h.isHeld(time.Now()) || random.IntN(4) == 0) {
			return h
		}
	}
	return nil
}

func drawTTL(random *rand.Rand) time.Duration {
	ttls := []time.Duration{time.Second, 1500 * time.Millisecond, 3 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, time.Hour}
	return ttls[random.IntN(len(ttls))]
}

// drawNode returns the name of a node that is asked. The caller must hold s.mu.
func (s *clientSchedule) drawNode() string {
	for {
		if name := s.names[s.random.IntN(len(s.names))]; s.nodes[name].usable {
			return name
		}
	}
}

func (s *clientSchedule) drawPeek(key *clientKey) func() {
	by := s.drawNode()
	return func() { s.peek(key, by) }
}

func (s *clientSchedule) drawHold(key *clientKey, waits bool) func() {
	units, ttl, by := 1+s.random.Int64N(max(1, key.limit.Rate/3)), drawTTL(s.random), s.drawNode()
	if !waits {
		return func() { s.hold(s.t.Context(), key, by, units, ttl, false) }
	}
	patience := time.Duration(50+s.random.IntN(2000)) * time.Millisecond
	return func() {
		s.waiting.Go(func() {
			ctx, cancel := context.WithTimeout(s.t.Context(), patience)
			defer cancel()
			s.hold(ctx, key, by, units, ttl, true)
		})
	}
}

// call sends a request to a node, and reports whether the client receives the answer. The
// function do must not lock s.mu.
func (s *clientSchedule) call(key *clientKey, by string, do func(l *weir.Limiter) error) (err error, heard bool) {
	s.mu.Lock()
	n := s.nodes[by]
	if n == nil || !n.usable {
		s.mu.Unlock()
		return nil, false
	}
	n.users++
	s.mu.Unlock()
	l, err := n.Limiter(key.limit)
	if err == nil {
		err = do(l)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n.users--
	return err, s.nodes[by] == n && !n.frozen
}

func (s *clientSchedule) hold(ctx context.Context, key *clientKey, by string, units int64, ttl time.Duration, waits bool) {
	h := &clientHold{key: key, units: units, asked: time.Now()}
	what := "hold"
	s.mu.Lock()
	h.number = s.numbers
	s.numbers++
	if waits {
		what = "wait"
		key.waiters[h] = struct{}{}
	}
	key.asking[h] = struct{}{}
	s.mu.Unlock()
	var (
		text string
		d    weir.Decision
	)
	err, heard := s.call(key, by, func(l *weir.Limiter) (err error) {
		if waits {
			text, d, err = l.WaitHoldFor(ctx, key.name, units, ttl)
		} else {
			text, d, err = l.HoldFor(ctx, key.name, units, ttl)
		}
		return err
	})
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(key.asking, h)
	if waits {
		delete(key.waiters, h)
		key.waited = now
	}
	s.log("%s at %s: #%d, %d units of %s for %v: %v by %v, %d left, heard %v, %v", what, by, h.number, units, key, ttl, d.Allowed, d.Source, d.Remaining, heard, err)
	h.answered, h.until, h.counted, h.latest = now, h.asked.Add(ttl), now.Add(ttl), now.Add(ttl)
	switch {
	case !heard:
		key.holds = append(key.holds, h) // the client has no text
	case d.Allowed && err == nil:
		h.text = text
		key.holds = append(key.holds, h)
		s.judgeSum(h, "granted", now)
	case err != nil && !(waits && errors.Is(err, context.DeadlineExceeded)):
		s.fail("a hold returned an error: %v", err)
	default:
		if !s.isCalm(h.asked) {
			h.counted = now.Add(s.spread()) // the answer to a grant may have been late
			key.holds = append(key.holds, h)
		}
		s.judgeDenial(h, waits, now)
	}
}

// isCalm reports whether no fault is active, and the effects of the last fault had ended at the
// time since.
func (s *clientSchedule) isCalm(since time.Time) bool {
	return !s.active && (s.last.IsZero() || since.Sub(s.last) > s.spread())
}

// spread returns how long after a fault the fault explains any denial.
func (s *clientSchedule) spread() time.Duration {
	if s.kind == freezes || s.kind == splits {
		return releaseSpread
	}
	return faultSpread
}

// sum returns the units that clients have of a key.
func (k *clientKey) sum(at time.Time) (units int64) {
	for _, h := range k.holds {
		if h.isHeld(at) {
			units += h.units
		}
	}
	return units
}

// mostCounted returns an upper bound of the units of the key that members may count at any moment
// from the time since to now.
func (k *clientKey) mostCounted(since time.Time) (units int64) {
	for _, h := range k.holds {
		switch {
		case !h.mayCount(since, delivered):
		case since.Before(h.shrunk.Add(delivered)):
			units += max(h.units, h.most)
		default:
			units += h.units
		}
	}
	for h := range k.asking {
		units += h.units
	}
	return units
}

// judgeSum compares the units that clients hold at the same time with the bound.
func (s *clientSchedule) judgeSum(h *clientHold, how string, now time.Time) {
	k := h.key
	sum, bound := k.sum(now), k.limit.Rate
	switch {
	case s.isCalm(h.asked) && how == "granted":
	case s.kind == freezes:
		bound *= 2 // the stand-in grants as much as the owner
	case s.kind == splits && s.splitAt.IsZero():
	case s.kind == splits:
		bound = k.split + 2*k.limit.Rate
	}
	if sum > bound {
		s.fail("#%d is %s, and clients have %d units of %v, of at most %d", h.number, how, sum, k, bound)
	}
}

// judgeDenial checks a denial that no fault explains. The units that members may count
// must leave too little room, or a waiter must be in line.
func (s *clientSchedule) judgeDenial(h *clientHold, waited bool, now time.Time) {
	k, since := h.key, h.asked
	if waited {
		since = now.Add(-waiterSpread)
	}
	if !s.isCalm(since) || since.Before(h.asked) || len(k.waiters) > 0 || !waited && h.asked.Sub(k.waited) <= delivered {
		return
	}
	if most := k.mostCounted(since); most+h.units <= k.limit.Rate {
		s.fail("#%d: %d units are denied, and at most %d of %d of %v are held", h.number, h.units, most, k.limit.Rate, k)
	}
}

// renew renews a hold. Some renewals return a unit: the client gives up the unit when it sends the
// request, and members may count the unit until they have answered.
func (s *clientSchedule) renew(h *clientHold, by string, ttl time.Duration) {
	begun := time.Now()
	s.mu.Lock()
	shrinks := h.units > 1 && h.number%2 == 0
	if shrinks {
		h.units, h.most, h.shrunk = h.units-1, max(h.units, h.most), never
	}
	keep, held := h.units, h.units
	s.mu.Unlock()
	err, heard := s.call(h.key, by, func(l *weir.Limiter) (err error) {
		if shrinks {
			held, err = l.ShrinkHold(s.t.Context(), h.key.name, h.text, keep, ttl)
			return err
		}
		return l.RenewHold(s.t.Context(), h.key.name, h.text, ttl)
	})
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if shrinks && heard && err == nil {
		if h.shrunk = now; held != keep {
			s.fail("#%d keeps %d of %d units", h.number, held, keep)
		}
	}
	h.busy, h.latest = false, maxTime(h.latest, now.Add(ttl))
	s.log("renew at %s: #%d of %v for %v, heard %v: %v", by, h.number, h.key, ttl, heard, err)
	ended := !h.released.IsZero() || begun.After(h.counted.Add(ttlSlack))
	switch {
	case !heard, err != nil && !errors.Is(err, weir.ErrExpired):
		h.until, h.counted = minTime(h.until, begun.Add(ttl)), maxTime(h.counted, now.Add(ttl)) // the renewal may have been applied or not
		if heard && s.isSound(begun) {
			s.fail("renewing #%d returned an error: %v", h.number, err)
		}
	case err == nil:
		if ended && (s.isSound(begun) || s.isCalm(begun)) {
			s.fail("#%d is renewed, and was over before", h.number)
		}
		h.until = begun.Add(ttl)
		if s.kind != splits { // the other side may have a renewal that lasts longer
			h.counted = time.Time{}
		}
		h.counted = maxTime(h.counted, now.Add(ttl))
		if !h.ending {
			s.judgeSum(h, "renewed", now)
		}
	default:
		if h.isHeld(now) && (s.kind != splits || s.isCalm(h.asked)) {
			s.fail("#%d is lost %v before its ttl ends", h.number, h.until.Sub(now))
		}
		h.ending = true
	}
}

// isSound reports whether requests since the given time must succeed.
func (s *clientSchedule) isSound(since time.Time) bool {
	return s.kind == deploys || !s.active && since.Sub(s.last) > faultSpread
}

func (s *clientSchedule) release(h *clientHold, by string) {
	s.mu.Lock()
	h.ending, h.busy = true, true
	s.mu.Unlock()
	begun := time.Now()
	err, heard := s.call(h.key, by, func(l *weir.Limiter) error {
		return l.ReleaseHold(s.t.Context(), h.key.name, h.text)
	})
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	h.busy = false
	s.log("release at %s: #%d of %v, heard %v: %v", by, h.number, h.key, heard, err)
	switch {
	case !heard:
	case err == nil && h.released.IsZero():
		h.released = now
	case err != nil && s.isSound(begun):
		s.fail("releasing #%d returned an error: %v", h.number, err)
	}
}

// peek compares the number of units that are left at a node with the holds of the clients.
func (s *clientSchedule) peek(key *clientKey, by string) {
	begun := time.Now()
	var d weir.Decision
	err, heard := s.call(key, by, func(l *weir.Limiter) (err error) {
		d, err = l.Peek(s.t.Context(), key.name)
		return err
	})
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log("peek at %s: %d left of %v, heard %v: %v", by, d.Remaining, key, heard, err)
	if !heard || !s.isCalm(begun) {
		return
	}
	if least := max(0, key.limit.Rate-key.mostCounted(begun)); d.Remaining < least && len(key.waiters) == 0 {
		s.fail("%d units are left of %v at %s, and at least %d are free", d.Remaining, key, by, least)
	}
	held := int64(0)
	for _, h := range key.holds {
		if h.answered.Before(begun) && !h.busy && h.isHeld(now) {
			held += h.units
		}
	}
	if most := max(0, key.limit.Rate-held); d.Remaining > most {
		s.fail("%d units are left of %v at %s, and %d are held", d.Remaining, key, by, held)
	}
}

// finish waits until the effects of the last fault have ended. It compares the answers of all nodes
// with the holds of the clients, and releases the holds.
func (s *clientSchedule) finish() {
	time.Sleep(s.spread() + ttlSlack)
	for _, key := range s.keys {
		for _, name := range s.names {
			s.peek(key, name)
		}
		if s.wrong != "" {
			return
		}
		for _, h := range key.holds {
			if h.text != "" && time.Until(h.until).Abs() > time.Second { // a hold whose ttl ends about now may have ended or not
				s.renew(h, s.drawNode(), time.Minute)
			}
		}
	}
	for _, key := range s.keys {
		for _, h := range key.holds {
			if h.text != "" {
				s.release(h, s.drawNode())
			}
		}
	}
	if s.wrong != "" {
		return
	}
	time.Sleep(delivered)
	for _, key := range s.keys {
		for _, name := range s.names {
			units := key.limit.Rate - key.mostCounted(time.Now()) // a hold whose answer was lost still counts
			if units < 1 {
				continue
			}
			s.hold(s.t.Context(), key, name, units, time.Second, false)
			if h := key.holds[len(key.holds)-1]; s.wrong == "" {
				s.release(h, name)
				time.Sleep(delivered)
			}
		}
	}
	counted := time.Now()
	for _, key := range s.keys {
		for _, h := range key.holds {
			counted = maxTime(counted, h.latest)
		}
	}
	if time.Until(counted) > 2*faultSpread {
		return // even in virtual time, it takes too long to wait for an hour
	}
	time.Sleep(time.Until(counted) + faultSpread)
	for _, name := range s.names {
		if held := s.nodes[name].Stats().Holds; held.Held+held.Known > 0 {
			s.fail("%s knows of holds in the end: %+v", name, held)
		}
	}
}

func (k *clientKey) String() string { return fmt.Sprintf("%q (%s)", k.name, k.limit.Name) }

// log appends a line to the trace, which is printed if the schedule fails. The caller
// must hold s.mu, or be the only goroutine.
func (s *clientSchedule) log(format string, args ...any) {
	s.trace = append(s.trace, fmt.Sprintf("%9.4f ", time.Since(s.began).Seconds())+fmt.Sprintf(format, args...))
}

// fail logs an error, and records the first error of the schedule. The caller must hold
// s.mu, or be the only goroutine.
func (s *clientSchedule) fail(format string, args ...any) {
	s.log("WRONG: "+format, args...)
	if s.wrong == "" {
		s.wrong = fmt.Sprintf(format, args...)
	}
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func maxTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// addNode adds a node to which clients send requests. The caller must hold s.mu, or be
// the only goroutine.
func (s *clientSchedule) addNode(name string, n *weir.Node) {
	s.nodes[name] = &clientNode{Node: n, usable: true}
	if !slices.Contains(s.names, name) {
		s.names = append(s.names, name)
	}
}

// disrupt deploys, crashes, freezes or splits nodes in rounds.
func (s *clientSchedule) disrupt(random *rand.Rand) {
	defer close(s.disrupted)
	pause := func() { time.Sleep(time.Duration(random.Int64N(int64(2 * time.Second)))) }
	pause()
	rounds := 1 + random.IntN(2)
	if s.kind == deploys {
		rounds = 1 + random.IntN(5)
	}
	for range rounds {
		switch s.kind {
		case deploys:
			s.deploy(random)
		case crashes:
			s.crash(random)
		case freezes:
			s.freeze(random)
		case splits:
			s.split(random)
		}
		pause()
	}
}

func (s *clientSchedule) begin(what string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = true
	s.log(what, args...)
}

func (s *clientSchedule) end(what string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active, s.last = false, time.Now()
	s.log(what, args...)
}

// start starts a node, and waits until it is ready.
func (s *clientSchedule) start(name string) {
	n, err := s.w.launch(s.t, name, seeded)
	if err != nil {
		panic(err)
	}
	for !n.Ready() {
		time.Sleep(10 * time.Millisecond)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addNode(name, n)
	s.log("%s is ready", name)
}

// leave calls Leave on a node, and closes the node. Clients send requests until Leave returns, and
// Close follows the last answer.
func (s *clientSchedule) leave(name string, rest time.Duration) {
	n := s.nodes[name]
	err := n.Leave(s.t.Context())
	s.mu.Lock()
	s.log("%s has left: %v", name, err)
	n.usable = false
	s.names = slices.DeleteFunc(s.names, func(other string) bool { return other == name })
	for n.users > 0 {
		s.mu.Unlock()
		time.Sleep(time.Millisecond)
		s.mu.Lock()
	}
	s.mu.Unlock()
	time.Sleep(rest)
	err = n.Close()
	s.mu.Lock()
	delete(s.nodes, name)
	s.log("%s is closed: %v", name, err)
	s.mu.Unlock()
	s.w.network.Host(name).Kill()
}

// deploy starts a node, stops a node with Leave, or replaces a node, on the same host or on
// another host.
func (s *clientSchedule) deploy(random *rand.Rand) {
	name := s.names[random.IntN(len(s.names))]
	other := name
	for s.nodes[other] != nil {
		other = fmt.Sprintf("%s%d", name[:1], random.IntN(1000))
	}
	kind := random.IntN(6)
	rest := time.Duration(0)
	if random.IntN(2) == 0 {
		rest = time.Second
	}
	if kind == 1 && len(s.names) < 3 {
		kind = 0
	}
	switch kind {
	case 0:
		s.begin("%s joins", other)
		s.start(other)
	case 1:
		s.begin("%s leaves", name)
		s.leave(name, rest)
	case 2, 3:
		s.begin("%s is replaced by %s", name, other)
		s.start(other)
		s.leave(name, rest)
	default:
		s.begin("%s restarts", name)
		s.leave(name, rest)
		s.start(name)
	}
	s.end("deployed")
}

// crash kills a node, or closes it without Leave, and may start another node.
func (s *clientSchedule) crash(random *rand.Rand) {
	if s.dead++; len(s.names)-1 <= s.dead {
		return // the remaining nodes would have no majority
	}
	name := s.names[random.IntN(len(s.names))]
	closes := random.IntN(4) == 0
	s.begin("%s dies, closed %v", name, closes)
	n := s.nodes[name]
	s.mu.Lock()
	n.usable = false
	delete(s.nodes, name)
	s.names = slices.DeleteFunc(s.names, func(other string) bool { return other == name })
	s.mu.Unlock()
	if !closes {
		s.w.network.Host(name).Kill()
	}
	if err := n.Close(); err != nil {
		panic(err)
	}
	s.w.network.Host(name).Kill()
	time.Sleep(time.Duration(random.Int64N(int64(3 * time.Second))))
	if random.IntN(3) > 0 {
		s.start(name)
	}
	time.Sleep(time.Second)
	s.end("the crash of %s is over", name)
	time.Sleep(faultSpread)
}

// freeze freezes a node for a while.
func (s *clientSchedule) freeze(random *rand.Rand) {
	name := s.names[random.IntN(len(s.names))]
	s.begin("%s freezes", name)
	s.mu.Lock()
	n := s.nodes[name]
	n.usable, n.frozen = false, true
	s.mu.Unlock()
	s.w.network.Host(name).Freeze()
	if random.IntN(2) == 0 {
		time.Sleep(3 * time.Second)
	} else {
		time.Sleep(time.Duration(random.Int64N(int64(15 * time.Second))))
	}
	s.w.network.Host(name).Thaw()
	s.mu.Lock()
	n.usable, n.frozen = true, false
	s.mu.Unlock()
	s.end("%s has thawed", name)
	if random.IntN(2) == 0 {
		time.Sleep(releaseSpread)
	}
}

// split cuts the nodes in two sides for a while.
func (s *clientSchedule) split(random *rand.Rand) {
	s.begin("")
	s.mu.Lock()
	names := slices.Clone(s.names)
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	cut := 1 + random.IntN(len(names)-1)
	s.splitAt = time.Now()
	for _, k := range s.keys {
		k.split = k.sum(s.splitAt)
	}
	s.log("%v and %v split", names[:cut], names[cut:])
	s.mu.Unlock()
	s.w.network.Split(names[:cut], names[cut:])
	time.Sleep(time.Duration(random.Int64N(int64(15 * time.Second))))
	s.w.network.Heal()
	s.end("healed")
	if random.IntN(2) == 0 {
		time.Sleep(releaseSpread)
	}
}
