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
	// A lease is for so long. Of keys that are asked for often, that is long enough to be
	// renewed in good time also on a machine without idle time; of others, until leaseAsks
	// are to be expected. A Refund elsewhere may go unnoticed for as long.
	shortestLease = 100 * time.Millisecond
	leaseAsks     = 8

	// A lease is renewed once half of its units are spent, or two thirds of its term are
	// over and some of them are. For leaseIdle a key's pace is remembered after that.
	leaseIdle = time.Second
	// sweepEvery is how often leases are looked at, while there are some. It is no part of
	// any other time, see collectEvery.
	sweepEvery = 10*time.Millisecond - 11
	// refusedFor is how long nothing is asked for after nothing was lent.
	refusedFor = 20 * time.Millisecond
)

// A node has leaseSets*leaseWays leases at most, in 1.5 MB. An id has its place in one of
// the sets; where that is full of leases, none is asked for.
const (
	leaseSets = 1 << 11
	leaseWays = 4
	// maxReturns bounds what waits to be given back; what comes on top stays spent.
	maxReturns = leaseSets * leaseWays
)

// leases are the units that owners have lent to this node, so that checks of hot keys end
// here. A take spends of its key's lease if that has enough.
//
// All of them are debited where they are from, so that to spend them needs nobody's leave,
// and to lose them costs units and no exactness. A lease ends by time alone, from when it
// was asked for, which is before its owner began to count: by the clock that the check
// itself reads, and by the steady one, whichever is ahead. So a node that was frozen finds
// its leases over, and neither a clock that steps back nor one that stands still makes one
// last.
//
// A lease is of one count. Its owner marks it with the number of the count's last reset
// that it knows of: one of a lower number than this node knows ends, or is not begun.
//
// What is left of a lease that is over, or takes the place of, is given back to its
// owner, along with how much was spent, so that the owner knows as soon as nothing of it may
// come back any more. One goroutine, Run, does that, and renews: no check waits.
type leases struct {
	sets  atomic.Pointer[[leaseSets]leaseSet] // nil until a key is hot
	live  bitmap                              // the sets with leases
	due   bitmap                              // those of which one is to be renewed at once
	awake atomic.Bool                         // Run goes through them
	wake  chan struct{}
	stops atomic.Bool // this node leaves, and has none any more
	// number is Owner.ResetNumber: a lease of a lower one is of a count that is no more.
	number func(id bucket.ID, now int64) uint64

	mu   sync.Mutex
	back []leaseErrand // what is to be given back
}

// leaseErrand is what is to be asked of, or told to, the member of this name's hash.
type leaseErrand struct {
	owner uint64
	ask   wire.Ask
}

type leaseSet struct {
	// until is when the last of them ends, as in a pushbackSet.
	until atomic.Int64 // by the monotonic clock
	mu    sync.Mutex
	of    [leaseWays]lease
}

// lease is one key's, by one set of numbers. Without units it is what is known of a key
// that had some, or is to have some.
type lease struct {
	ask     wire.Ask   // the ask that was granted the lease, with a reference to its units in Spent
	lent    wire.Lease // as granted
	numbers uint64     // of its limit
	owner   uint64     // the hash of the name of who lent it
	rest    int64      // units that are left
	sent    countsync.Time
	pace    float64 // units spent in a second, as last known
	used    int64   // when it was last asked for, by the monotonic clock
	again   int64   // when an owner may be asked for more: one is asked until then, or has refused
	hurries bool    // half of it is spent

	limit, remaining int64 // as answered
	reset            time.Duration
}

func (e *lease) is(a *wire.Ask) bool {
	return e.ask.ID == a.ID && (e.ask.Limit == a.Limit || e.ask.Limit != nil && e.numbers == wire.NumbersHash(a.Limit))
}

// past is how long ago it was asked for.
func (e *lease) past(t countsync.Time) time.Duration {
	return time.Duration(max(t.Monotonic-e.sent.Monotonic, t.Now-e.sent.Now))
}

func (e *lease) term() time.Duration { return time.Duration(e.lent.Term) * time.Millisecond }

// ends is when it is over at the latest, by the monotonic clock.
func (e *lease) ends() int64 { return e.sent.Monotonic + int64(e.term()) }

// spend reports whether a take is admitted by a lease, and answers it.
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
	for i := range s.of {
		e := &s.of[i]
		if e.ask.ID != a.ID || e.rest < a.Units || !e.is(a) {
			continue
		}
		past := e.past(t)
		if past >= e.term() {
			continue
		}
		e.rest -= a.Units
		e.used = t.Monotonic
		if 2*e.rest < int64(e.lent.Units) && !e.hurries && t.Monotonic >= e.again {
			e.hurries, hurries = true, true
		}
		r.Allowed = true
		r.Limit = e.limit
		r.Remaining = e.remaining + e.rest
		r.RetryAfter = 0
		r.ResetAfter = max(1, e.reset-past)
		r.Receipt = 0
		r.Source = wire.Leased
		spent = true
		break
	}
	s.mu.Unlock()
	if hurries {
		l.due.set(int(a.ID.Lo % leaseSets))
		env.Signal(l.wake)
	}
	return spent
}

// refund reports whether units that were spent of a lease could go back to it. One of
// which fewer were spent ends: what is left of it is to be given back before the owner is
// asked for the refund, which takes nothing that is lent.
func (l *leases) refund(a *wire.Ask, t countsync.Time) (done bool, left leaseErrand, over bool) {
	s := l.set(a.ID)
	if s == nil {
		return false, left, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(a, false)
	switch {
	case e == nil || e.lent.Units == 0:
		return false, left, false
	case e.past(t) < e.term() && int64(e.lent.Units)-e.rest >= a.Units:
		e.rest += a.Units
		return true, left, false
	}
	return false, e.close(t), true
}

// want makes a take that is about to be sent ask for a lease, if its key is hot, as the pace
// says that it is asked for elsewhere, in asks a second, or as it was spent from a lease.
// One that is over or has too little for the take ends: it is what was left of it, to be
// given back before the owner is asked.
func (l *leases) want(a *wire.Ask, pace float64, t countsync.Time, wait time.Duration) (left leaseErrand, over bool) {
	s := l.set(a.ID)
	if s == nil {
		if pace == 0 {
			return left, false
		}
		l.sets.CompareAndSwap(nil, new([leaseSets]leaseSet))
		s = l.set(a.ID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(a, pace > 0)
	if e == nil {
		return left, false
	}
	if e.lent.Units > 0 {
		left, over = e.close(t), true
	}
	if pace *= float64(a.Units); t.Monotonic-e.used < int64(leaseIdle) {
		pace = max(pace, e.pace)
	}
	e.used = t.Monotonic
	if pace > 0 && t.Monotonic >= e.again {
		e.again = t.Monotonic + int64(wait)
		a.Take.Want = wanted(pace)
	}
	return left, over
}

// find is what is known of the lease of an ask; if it is to be made, in the place of that
// which was asked for longest ago, nil if all others are leases.
func (s *leaseSet) find(a *wire.Ask, make bool) (found *lease) {
	for i := range s.of {
		e := &s.of[i]
		if e.is(a) {
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

// wanted is the lease for so many units a second.
func wanted(pace float64) wire.Want {
	term := min(max(time.Duration(leaseAsks/pace*float64(time.Second)), shortestLease), wire.LongestLease)
	units := math.Ceil(pace*term.Seconds()*5/4) + 1
	return wire.Want{Units: uint32(min(units, math.MaxUint32)), Term: uint16(term / time.Millisecond)}
}

// close ends a lease: left is what is to be said of it.
func (e *lease) close(t countsync.Time) (left leaseErrand) {
	e.measure(t)
	left = leaseErrand{e.owner, e.ask}
	left.ask.Units = e.rest
	left.ask.Lent = wire.Lent{Units: e.lent.Units - uint32(e.rest), Until: e.lent.Until}
	e.rest, e.lent, e.hurries = 0, wire.Lease{}, false
	return left
}

// measure takes note of the pace at which a lease is spent.
func (e *lease) measure(t countsync.Time) {
	past := max(min(e.past(t), e.term()), time.Millisecond)
	pace := float64(int64(e.lent.Units)-e.rest) / past.Seconds()
	e.pace = max(pace, (e.pace+pace)/2)
}

// learn takes in what was lent to an ask that wanted it, which was sent then to the owner.
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
		e.again, e.hurries = t.Monotonic+int64(refusedFor), true
		return
	case r.Lease.Units == 0:
		return
	case e == nil || r.ResetNumber < l.number(a.ID, t.Now) || l.stops.Load():
		left := leaseErrand{owner, a.Taken(r)}
		left.ask.Units, left.ask.Lent = int64(r.Lease.Units), wire.Lent{Until: r.Lease.Until}
		l.giveBack(left)
		return
	case e.lent.Units > 0:
		l.giveBack(e.close(t))
	}
	e.ask, e.owner, e.sent = a.Taken(r), owner, sent
	e.lent, e.rest = r.Lease, int64(r.Lease.Units)
	e.limit, e.remaining, e.reset = r.Limit, r.Remaining, r.ResetAfter
	e.again, e.hurries = 0, false
	if e.ends() > s.until.Load() {
		s.until.Store(e.ends())
	}
	l.live.set(int(a.ID.Lo % leaseSets))
	if !l.awake.Load() {
		env.Signal(l.wake)
	}
}

// giveBack has Run give back what was left of a lease.
func (l *leases) giveBack(left leaseErrand) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.back) < maxReturns {
		l.back = append(l.back, left)
		env.Signal(l.wake)
	}
}

// returns appends what is to be given back, and forgets it.
func (l *leases) returns(all []leaseErrand) []leaseErrand {
	l.mu.Lock()
	defer l.mu.Unlock()
	all = append(all, l.back...)
	clear(l.back)
	l.back = l.back[:0]
	return all
}

// end forgets the leases of an id that were granted before the reset of this number. Those
// of members that know of it stay. Where number has this reset before end is called, an
// answer that is still under way brings none of the old ones either.
func (l *leases) end(id bucket.ID, number uint64) {
	s := l.set(id)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.of {
		if e := &s.of[i]; e.ask.ID == id && e.ask.Spent.ResetNumber < number {
			*e = lease{}
		}
	}
}

// sweep looks at one set: it ends what is over, and appends the asks of those that are to
// be renewed. lives is false if no lease is left in it.
func (l *leases) sweep(set int, t countsync.Time, wait time.Duration, renew []wire.Ask) (_ []wire.Ask, lives bool) {
	s := &l.sets.Load()[set]
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.of {
		e := &s.of[i]
		if e.lent.Units == 0 {
			continue
		}
		past, term := e.past(t), e.term()
		if l.stops.Load() {
			past = term
		} else if (e.hurries || past >= term*2/3) && t.Monotonic >= e.again && e.rest < int64(e.lent.Units) {
			e.measure(t)
			a := e.ask
			a.Units, a.Take = 0, wire.Take{Sent: t.Monotonic, Want: wanted(e.pace)} // Sent is for Late
			e.again = t.Monotonic + int64(wait)
			renew = append(renew, a)
		}
		if past >= term {
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

// bitmap is which of the sets.
type bitmap [leaseSets / 64]atomic.Uint64

func (b *bitmap) set(i int) { b[i/64].Or(1 << (i % 64)) }

func (b *bitmap) clear(i int) { b[i/64].And(^(uint64(1) << (i % 64))) }

// all calls f for each that is set.
func (b *bitmap) all(f func(i int)) {
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
		for j := range s.of {
			if e := &s.of[j]; e.lent.Units > 0 && e.past(t) < e.term() {
				units += int(e.rest)
			}
		}
		s.mu.Unlock()
	}
	return units
}

// stop gives all leases back, and has none asked for any more.
func (l *leases) stop() {
	l.stops.Store(true)
	l.live.all(func(set int) {
		l.due.set(set)
		env.Signal(l.wake)
	})
}
