package asker

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

const (
	// These values determine the term of a lease: the time in which leaseAsks units are expected to
	// be spent, but at least shortestLease and at most wire.LongestLease. shortestLease is long enough to
	// renew the lease of a very hot key in time even on a machine without idle time. A lease is short, because
	// this node may not learn of a refund on another member before the lease ends.
	shortestLease = 100 * time.Millisecond
	leaseAsks     = 8

	// leaseIdle is how long the pace of a key is remembered after its last use. A lease is renewed
	// once more than half of its units are spent, or once two thirds of its term have passed and
	// some units are spent.
	leaseIdle = time.Second
	// sweepEvery is the time between two sweeps while there are leases. The value is not
	// round, so that in virtual time sweeps do not coincide with other events (see
	// collectEvery of package handover).
	sweepEvery = 10*time.Millisecond - 11
	// refusedFor is the time for which no lease of a key is requested after a refusal.
	refusedFor = 20 * time.Millisecond
)

// A node has at most leaseSets*leaseWays leases, in 2.9 MB. Each ID belongs to one of the
// sets. While a set is full of leases, no further lease is requested for its IDs.
const (
	leaseSets = 1 << 11
	leaseWays = 4
	// maxReturns is the maximum number of leases that wait to be returned. The units of any
	// further leases remain spent.
	maxReturns = leaseSets * leaseWays
)

// leases contains the units that owners have lent to this node, so that checks of hot keys
// need no request. A take spends units of the lease of its key if the lease has enough units.
//
// The owner has debited all lent units. So the node spends them without asking, and if the node
// crashes, the unspent units are lost, but the limit is never exceeded. The owner revokes no lease:
// a lease ends by time, unless this node returns it before or learns of a reset. The term begins
// when the lease was requested, which is before the term of the owner begins. The age of a lease is measured by
// both clocks of the node (env.Clock), and the greater age counts. So the leases of a frozen node have expired
// when it resumes, and no lease is prolonged by a clock that steps back or stops.
//
// A lease belongs to one count. The owner marks it with the number of the last reset of the
// count that the owner knows of. If this node knows a higher number, it ends the lease, or
// does not begin it.
//
// When a lease ends or is replaced, its unspent units are returned to the owner, together
// with the number of spent units, so that the owner knows as soon as possible that no units
// will be returned any more. Run renews leases, and returns most of them, so no check waits for
// that. A check or a refund whose lease has expired or is too small returns the lease itself,
// without waiting for an answer. No units are returned of a lease that a reset ends.
type leases struct {
	sets   atomic.Pointer[[leaseSets]leaseSet] // nil until a key is hot
	live   bitmap                              // sets with leases
	urgent bitmap                              // sets that Run should sweep at once, because a lease should be renewed or returned
	awake  atomic.Bool                         // Run sweeps the sets regularly
	wake   chan struct{}
	stops  atomic.Bool // set once this node leaves, and accepts no more leases
	// number is Owner.ResetNumber. A lease with a lower number belongs to a count that was
	// reset.
	number func(id bucket.ID, now int64) uint64

	mu   sync.Mutex
	back []leaseErrand // leases that are to be returned
}

// leaseErrand is a request for a lease, or the return of a lease, to its owner.
type leaseErrand struct {
	owner uint64 // hash of the name of the owner
	ask   wire.Ask
}

type leaseSet struct {
	// until is the end of the last lease in the set. After that time, a take does not lock the set.
	until   atomic.Int64 // monotonic time
	mu      sync.Mutex
	entries [leaseWays]lease
}

// lease is the lease of a key, for one set of numbers. A lease without units records a key
// that had a lease, or for which a lease is requested.
type lease struct {
	ask        wire.Ask   // the ask that was granted the lease, with a reference to its units in Spent
	lent       wire.Lease // the lease as the owner granted it; zero for an entry without units
	numbers    uint64     // hash of the numbers of its limit
	owner      uint64     // hash of the name of the lender
	rest       int64      // unspent units
	sent       countsync.Time
	pace       float64 // number of units spent per second, as last measured
	used       int64   // time of the last use, by the monotonic clock
	askAgainAt int64   // monotonic time from which the owner may be asked again; until then a request is under way, or was refused
	hurries    bool    // more than half of the units are spent, or the last request was refused

	limit, remaining int64         // Limit and Remaining in the result of the owner
	reset            time.Duration // ResetAfter in the result of the owner
	at               int64         // At in the result of the owner
}

func (e *lease) matches(a *wire.Ask) bool {
	return e.ask.ID == a.ID && (e.ask.Limit == a.Limit || e.ask.Limit != nil && e.numbers == wire.NumbersHash(a.Limit))
}

// age returns the time since the lease was requested.
func (e *lease) age(t countsync.Time) time.Duration {
	return time.Duration(max(t.Monotonic-e.sent.Monotonic, t.Now-e.sent.Now))
}

func (e *lease) term() time.Duration { return time.Duration(e.lent.Term) * time.Millisecond }

// endTime returns the latest time at which the lease ends, by the monotonic clock.
func (e *lease) endTime() int64 { return e.sent.Monotonic + int64(e.term()) }

// spend reports whether a lease admits a take, and sets the result.
func (l *leases) spend(a *wire.Ask, t countsync.Time, r *wire.Result) (spent bool) {
	sets := l.sets.Load()
	if sets == nil || !a.Leases {
		return false
	}
	s := &sets[a.ID.Lo%leaseSets]
	if t.Monotonic >= s.until.Load() {
		return false
	}
	hurries := false
	s.mu.Lock()
	for i := range s.entries {
		e := &s.entries[i]
		if e.ask.ID != a.ID || e.rest < a.Units || !e.matches(a) {
			continue
		}
		age := e.age(t)
		if age >= e.term() {
			continue
		}
		e.rest -= a.Units
		e.used = t.Monotonic
		if 2*e.rest < int64(e.lent.Units) && !e.hurries && t.Monotonic >= e.askAgainAt {
			e.hurries, hurries = true, true
		}
		r.Allowed = true
		r.Limit = e.limit
		r.Remaining = e.remaining + e.rest
		r.RetryAfter = 0
		r.ResetAfter = max(1, e.reset-age)
		r.Receipt = 0
		r.Source, r.At = wire.Leased, e.at
		spent = true
		break
	}
	s.mu.Unlock()
	if hurries {
		l.urgent.set(int(a.ID.Lo % leaseSets))
		env.Signal(l.wake)
	}
	return spent
}

// refund reports whether units were returned to the lease of their key, from which they may have
// been spent. If fewer units of the lease were spent, or the lease has expired, refund ends the
// lease, and ended is true. The caller must then return the unspent units in rest before it asks
// the owner for the refund, because the owner does not refund lent units.
func (l *leases) refund(a *wire.Ask, t countsync.Time) (done bool, rest leaseErrand, ended bool) {
	s := l.set(a.ID)
	if s == nil {
		return false, rest, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(a, false)
	switch {
	case e == nil || e.lent.Units == 0:
		return false, rest, false
	case e.age(t) < e.term() && int64(e.lent.Units)-e.rest >= a.Units:
		e.rest += a.Units
		return true, rest, false
	}
	return false, e.close(t), true
}

// addWant adds a request for a lease to a take that will be sent, if the key of the take is hot.
// pace is the number of asks of the key per second that this node sends to other members. The pace
// at which the last lease was spent counts as well. If the key has a lease, which has expired or
// has too few units for the take, addWant ends the lease, and ended is true. The caller must then
// return the unspent units in rest before it asks the owner.
func (l *leases) addWant(a *wire.Ask, pace float64, t countsync.Time, wait time.Duration) (rest leaseErrand, ended bool) {
	s := l.set(a.ID)
	if s == nil {
		if pace == 0 {
			return rest, false
		}
		l.sets.CompareAndSwap(nil, new([leaseSets]leaseSet))
		s = l.set(a.ID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(a, pace > 0)
	if e == nil {
		return rest, false
	}
	if e.lent.Units > 0 {
		rest, ended = e.close(t), true
	}
	if pace *= float64(a.Units); t.Monotonic-e.used < int64(leaseIdle) {
		pace = max(pace, e.pace)
	}
	e.used = t.Monotonic
	if pace > 0 && t.Monotonic >= e.askAgainAt {
		e.askAgainAt = t.Monotonic + int64(wait)
		a.Take.Want = wantFor(pace)
	}
	return rest, ended
}

// find returns the entry of the lease of an ask. If there is no entry and make is set, find
// replaces the entry without units that was used least recently. Otherwise, or if all entries
// are leases, find returns nil.
func (s *leaseSet) find(a *wire.Ask, make bool) (found *lease) {
	for i := range s.entries {
		e := &s.entries[i]
		if e.matches(a) {
			return e
		}
		if make && e.lent.Units == 0 && (found == nil || e.used < found.used) {
			found = e
		}
	}
	if found != nil {
		*found = lease{ask: *a, numbers: wire.NumbersHash(a.Limit)}
	}
	return found
}

// wantFor returns the lease to request for the given number of units per second.
func wantFor(pace float64) wire.Want {
	term := min(max(time.Duration(leaseAsks/pace*float64(time.Second)), shortestLease), wire.LongestLease)
	units := math.Ceil(pace*term.Seconds()*5/4) + 1
	return wire.Want{Units: uint32(min(units, math.MaxUint32)), Term: uint16(term / time.Millisecond)}
}

// close ends a lease, and returns the errand that returns its unspent units to the owner.
func (e *lease) close(t countsync.Time) (errand leaseErrand) {
	e.measure(t)
	errand = leaseErrand{e.owner, e.ask}
	errand.ask.Units = e.rest
	errand.ask.Lent = wire.Lent{Units: e.lent.Units - uint32(e.rest), Until: e.lent.Until}
	e.rest, e.lent, e.hurries = 0, wire.Lease{}, false
	return errand
}

// measure updates the pace at which the lease is spent.
func (e *lease) measure(t countsync.Time) {
	elapsed := max(min(e.age(t), e.term()), time.Millisecond)
	pace := float64(int64(e.lent.Units)-e.rest) / elapsed.Seconds()
	e.pace = max(pace, (e.pace+pace)/2)
}

// learn records the lease in the result r of an ask that was sent to the owner at the time sent. The
// argument t is the present time.
func (l *leases) learn(a *wire.Ask, r *wire.Result, owner uint64, sent, t countsync.Time) {
	s := l.set(a.ID)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(a, false)
	switch {
	case r.Lease.Units == 0 && e != nil:
		e.askAgainAt, e.hurries = t.Monotonic+int64(refusedFor), true
		return
	case r.Lease.Units == 0:
		return
	case e == nil || r.ResetNumber < l.number(a.ID, t.Now) || l.stops.Load():
		left := leaseErrand{owner, a.WithReceipt(r)}
		left.ask.Units, left.ask.Lent = int64(r.Lease.Units), wire.Lent{Until: r.Lease.Until}
		l.giveBack(left)
		return
	case e.lent.Units > 0:
		l.giveBack(e.close(t))
	}
	e.ask, e.owner, e.sent = a.WithReceipt(r), owner, sent
	e.lent, e.rest = r.Lease, int64(r.Lease.Units)
	e.limit, e.remaining, e.reset, e.at = r.Limit, r.Remaining, r.ResetAfter, r.At
	e.askAgainAt, e.hurries = 0, false
	if e.endTime() > s.until.Load() {
		s.until.Store(e.endTime())
	}
	l.live.set(int(a.ID.Lo % leaseSets))
	if !l.awake.Load() {
		env.Signal(l.wake)
	}
}

// giveBack makes Run return the unspent units of a lease.
func (l *leases) giveBack(errand leaseErrand) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.back) < maxReturns {
		l.back = append(l.back, errand)
		env.Signal(l.wake)
	}
}

// takeReturns appends the leases that are to be returned, and removes them from the list.
func (l *leases) takeReturns(all []leaseErrand) []leaseErrand {
	l.mu.Lock()
	defer l.mu.Unlock()
	all = append(all, l.back...)
	clear(l.back)
	l.back = l.back[:0]
	return all
}

// end forgets the leases of an ID that were granted before the reset with the given number. Leases
// of members that know of the reset are kept. l.number must return the number of this reset before
// end is called: then a late response cannot add an old lease.
func (l *leases) end(id bucket.ID, number uint64) {
	s := l.set(id)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.entries {
		if e := &s.entries[i]; e.ask.ID == id && e.ask.Spent.ResetNumber < number {
			*e = lease{}
		}
	}
}

// sweep visits a set. It ends expired leases, or all leases after stop, and appends the asks for leases
// that should be renewed to the slice renew. The argument wait is the time until such an ask may be repeated. The
// result lives reports whether the set still has leases.
func (l *leases) sweep(set int, t countsync.Time, wait time.Duration, renew []wire.Ask) (_ []wire.Ask, lives bool) {
	s := &l.sets.Load()[set]
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.entries {
		e := &s.entries[i]
		if e.lent.Units == 0 {
			continue
		}
		age, term := e.age(t), e.term()
		if l.stops.Load() {
			age = term
		} else if (e.hurries || age >= term*2/3) && t.Monotonic >= e.askAgainAt && e.rest < int64(e.lent.Units) {
			e.measure(t)
			a := e.ask
			a.Units, a.Take = 0, wire.Take{Sent: t.Monotonic, Want: wantFor(e.pace)} // HandleLate uses Sent
			e.askAgainAt = t.Monotonic + int64(wait)
			renew = append(renew, a)
		}
		if age >= term {
			l.giveBack(e.close(t))
			continue
		}
		lives = true
	}
	if !lives {
		l.live.clear(set)
	}
	return renew, lives
}

func (l *leases) set(id bucket.ID) *leaseSet {
	sets := l.sets.Load()
	if sets == nil {
		return nil
	}
	return &sets[id.Lo%leaseSets]
}

// bitmap is a set of indexes of lease sets.
type bitmap [leaseSets / 64]atomic.Uint64

func (b *bitmap) set(i int) { b[i/64].Or(1 << (i % 64)) }

func (b *bitmap) clear(i int) { b[i/64].And(^(uint64(1) << (i % 64))) }

// forEach calls f for each number in the bitmap.
func (b *bitmap) forEach(f func(i int)) {
	for word := range b {
		for w := b[word].Load(); w != 0; w &= w - 1 {
			f(word*64 + bits.TrailingZeros64(w))
		}
	}
}

// heldUnits returns the units that are left in all leases that have not expired.
func (l *leases) heldUnits(t countsync.Time) (units int) {
	sets := l.sets.Load()
	if sets == nil {
		return 0
	}
	for i := range sets {
		s := &sets[i]
		if t.Monotonic >= s.until.Load() {
			continue
		}
		s.mu.Lock()
		for j := range s.entries {
			if e := &s.entries[j]; e.lent.Units > 0 && e.age(t) < e.term() {
				units += int(e.rest)
			}
		}
		s.mu.Unlock()
	}
	return units
}

// stop makes Run return all leases. From then on, no leases are requested or accepted.
func (l *leases) stop() {
	l.stops.Store(true)
	l.live.forEach(func(set int) {
		l.urgent.set(set)
		env.Signal(l.wake)
	})
}
