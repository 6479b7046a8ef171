package countsync

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
)

// Holdings are what this region has of Global limits. It begins with its part of
// each, and grants of it to other regions, as they grant to it: taken off here
// before it is told, and of what is unspent, or with what is spent of it. Only its
// own part does a region grant; what it has received goes back to where it is from.
// So each pair of regions has accounts that no third one has a part in, what all
// regions have at any time sums to the limit at most, and what each has used is
// within what it has.
//
// A grant is for a term. Who has received it renews that while it needs it, gives
// it back when it does not, and is without it when the term ends; who granted it
// has it back then, as spent, a margin later. So a region that is cut off, or has
// lost its memory, costs the others nothing for longer than a term and a Per, and
// nobody has to find out about it.
//
// Of each id the one node decides that answers for it. Methods are safe for
// concurrent use; each takes the lock of one shard of the ids.
type Holdings struct {
	regions *Regions
	self    Member
	store   *bucket.Store
	rule    rule
	shards  [holdingShards]holdings

	kept   atomic.Int64 // how many
	refuse atomic.Uint64

	mu     sync.Mutex
	unsure int64  // until when an id without a holding may be one that was forgotten, by the steady clock
	agreed []bool // the regions that have shown since then that they share limits out alike
	begun  int64
}

const (
	holdingShards = 256
	// MaxHoldings bounds how many ids have a holding that is not the one that a
	// region begins with. Ids beyond are judged by that one.
	MaxHoldings = 256 << 10
	// term is for how long a grant may be spent, from when it was asked for; and
	// keptFor how long who granted it does without, from when it was told. The
	// margin is for clocks that differ in pace.
	term    = int64(10 * time.Second)
	keptFor = term + term/8
	// renewAfter is when a grant is asked for anew.
	renewAfter = term / 3
	// ExchangeEvery is the least time between two statements about an id to a
	// region.
	ExchangeEvery = 100 * time.Millisecond
	// unanswered is when a statement that got no answer is made anew.
	unanswered = int64(2 * time.Second)
	// longestRefusal bounds the time between two asks that are refused.
	longestRefusal = int64(5 * time.Second)
	// firstTrip is what a round trip to another region takes, as long as none was
	// measured.
	firstTrip = int64(200 * time.Millisecond)
)

// Time is the time of a step: Now of the clock that counts go by, and Steady of
// one that never steps, both in nanoseconds.
type Time struct{ Now, Steady int64 }

type holdings struct {
	mu    sync.Mutex
	of    map[bucket.ID]*holding
	queue []*holding // those to be looked at by the next Due
	all   []*holding // in no order
	next  int        // of all, to be looked at
}

// holding is one id's.
type holding struct {
	id       bucket.ID
	whole    bucket.Limit // by which it was asked for last
	limit    bucket.Limit // which judges here: whole's part
	held     int64        // limit's capacity, and what is promised or to be passed
	until    int64        // when limit has to be made anew
	accounts []account    // by index in regions; that of this one is unused

	asked   int64   // since at
	demand  float64 // units asked for in a second, of late, as of at
	usual   float64 // and over windows
	at      int64
	largest int64 // ask that was denied, since the last look
	denied  int64 // when that was
	seen    int64 // when it was asked for last
	spent   int64 // since series
	series  int64

	passing  int64 // received, and to go back since a third region asked for it
	passTill int64

	place  int // in shard.all
	queued bool
	unsure bool  // made when an id without a holding may have been forgotten
	copied int64 // when it was taken from another node
}

// account is what one region has of another, both ways.
type account struct {
	granted      int64  // to the region, that it may still have
	grantedTo    Member // who made its last statement
	grantedUntil int64
	moved        int64 // spent, and gone with the last grant: it counts here again if that was not taken
	heard        int64 // the number of that statement
	promised     int64 // that the region is to have as soon as it is unspent here
	promisedTill int64

	received      int64 // of the region
	receivedUntil int64
	owes          int64 // spent, and gone with what was given back, as long as the region may not know
	number        int64 // of the last statement to it
	asked         int64 // of the last that asked what it has of this region
	sent          int64 // when that was
	waits         bool  // for its answer
	wants         bool  // it asked for more
	again         int64 // when it is asked for more at the earliest
	refusals      int

	known    bool  // what it has of this region: it has said so, or nothing was forgotten
	reported int64 // spent, when it was last told
	theirs   int64 // what it has told
	series   int64 // of theirs
	trip     int64 // what the last answer took
}

// NewHoldings makes those of a region, with no memory of what they were.
func NewHoldings(regions *Regions, self Member, store *bucket.Store, t Time) *Holdings {
	h := &Holdings{regions: regions, self: self, store: store, rule: byDemand}
	h.Forgotten(t)
	return h
}

// Forgotten says that what this region's holdings were is lost, or may be: what
// others have of this region they have to say. Until they have, an id has nothing.
func (h *Holdings) Forgotten(t Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun, h.unsure = t.Steady, math.MaxInt64
	h.agreed = make([]bool, len(h.regions.names))
	h.agreed[h.regions.self] = true
	h.agreeOn(h.regions.self)
}

// Sure says that another node, which knows of all holdings but those forgotten
// less than a term ago, has given its knowledge to this one: doubt is what Doubt
// returned there.
func (h *Holdings) Sure(doubt time.Duration, t Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unsure = t.Steady + int64(min(doubt, 1<<61))
}

// Doubt is for how long an id may still be one whose holding was forgotten.
func (h *Holdings) Doubt(t Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Duration(max(0, h.unsure-t.Steady))
}

// agreed notes that a region shares limits out as this one does. h.mu is held.
func (h *Holdings) agreeOn(region int) {
	h.agreed[region] = true
	for _, agreed := range h.agreed {
		if !agreed {
			return
		}
	}
	if h.unsure == math.MaxInt64 {
		h.unsure = h.begun + keptFor
	}
}

func (h *Holdings) shard(id bucket.ID) *holdings { return &h.shards[id.Lo%holdingShards] }

// Take is the store's, within what this region has.
func (h *Holdings) Take(id bucket.ID, whole *bucket.Limit, t Time, units int64, r *bucket.Result) {
	sh := h.shard(id)
	sh.mu.Lock()
	x := sh.of[id]
	if x == nil || t.Steady >= x.until || !x.follows(whole) {
		if x = h.holding(sh, id, whole, t); x == nil {
			l := h.beginning(whole, t)
			h.store.TakeInto(id, &l, t.Now, units, r)
			sh.mu.Unlock()
			return
		}
	}
	h.store.TakeInto(id, &x.limit, t.Now, units, r)
	h.took(x, units, t.Steady, r)
	sh.push(x)
	sh.mu.Unlock()
}

// took notes what an ask came to.
func (h *Holdings) took(x *holding, units, steady int64, r *bucket.Result) {
	x.asked += max(0, units)
	x.seen = steady
	if r.Allowed {
		x.spent += max(0, units)
		return
	}
	x.largest, x.denied = max(x.largest, units), steady
	r.RetryAfter = min(r.RetryAfter, h.soonest(x, steady))
}

// soonest is how long it takes until more may have come from elsewhere.
func (h *Holdings) soonest(x *holding, steady int64) time.Duration {
	soonest := int64(math.MaxInt64)
	if x.held >= x.whole.Capacity() {
		return time.Duration(soonest) // there is none
	}
	for i := range x.accounts {
		if i != h.regions.self {
			a := &x.accounts[i]
			trip := a.trip
			if trip == 0 {
				trip = firstTrip
			}
			soonest = min(soonest, max(0, a.again-steady)+int64(ExchangeEvery)+trip)
		}
	}
	return time.Duration(soonest)
}

// Do calls f with the limit that judges id here, alone with it. f returns what it
// has spent, below zero if it gave back.
func (h *Holdings) Do(id bucket.ID, whole *bucket.Limit, t Time, f func(*bucket.Limit) (spent int64)) {
	sh := h.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	x := h.holding(sh, id, whole, t)
	if x == nil {
		l := h.beginning(whole, t)
		f(&l)
		return
	}
	spent := f(&x.limit)
	x.spent = max(0, x.spent+spent)
	if spent > 0 {
		x.asked += spent
		x.seen = t.Steady
		sh.push(x)
	}
}

// Limit is what judges id here, for who decides within a share of it.
func (h *Holdings) Limit(id bucket.ID, whole *bucket.Limit, t Time) (l bucket.Limit) {
	h.Do(id, whole, t, func(of *bucket.Limit) int64 { l = *of; return 0 })
	return l
}

// beginning is the limit of an id that there is no room to keep a holding of.
func (h *Holdings) beginning(whole *bucket.Limit, t Time) bucket.Limit {
	if h.Doubt(t) > 0 {
		return portion(whole, 0)
	}
	return portion(whole, h.regions.start(whole.Capacity(), h.regions.self))
}

// holding is id's, up to date; nil if there is none and no room.
func (h *Holdings) holding(sh *holdings, id bucket.ID, whole *bucket.Limit, t Time) *holding {
	x := sh.of[id]
	if x == nil {
		if x = h.keep(sh, id, t); x == nil {
			return nil
		}
		x.whole = *whole
		h.renew(x, t)
	} else if !x.follows(whole) && x.adopt(whole) || t.Steady >= x.until {
		h.renew(x, t)
	}
	return x
}

// keep makes a holding for an id that has none, nil if there is no room.
func (h *Holdings) keep(sh *holdings, id bucket.ID, t Time) *holding {
	if h.kept.Add(1) > MaxHoldings {
		h.kept.Add(-1)
		h.refuse.Add(1)
		return nil
	}
	x := &holding{id: id, accounts: make([]account, len(h.regions.names)), at: t.Steady, seen: t.Steady, series: t.Now, place: len(sh.all)}
	x.unsure = h.Doubt(t) > 0
	for i := range x.accounts {
		x.accounts[i].known = !x.unsure || i == h.regions.self
	}
	if sh.of == nil {
		sh.of = make(map[bucket.ID]*holding)
	}
	sh.of[id] = x
	sh.all = append(sh.all, x)
	sh.push(x)
	return x
}

// drop forgets a holding.
func (h *Holdings) drop(sh *holdings, x *holding) {
	last := sh.all[len(sh.all)-1]
	sh.all[x.place], last.place = last, x.place
	sh.all[len(sh.all)-1] = nil
	sh.all = sh.all[:len(sh.all)-1]
	delete(sh.of, x.id)
	h.kept.Add(-1)
}

func (sh *holdings) push(x *holding) {
	if !x.queued {
		x.queued = true
		sh.queue = append(sh.queue, x)
	}
}

// follows is whether the holding was made for these numbers.
func (x *holding) follows(l *bucket.Limit) bool {
	w := &x.whole
	return w.Rate == l.Rate && w.Per == l.Per && w.Burst == l.Burst && w.Start == l.Start && w.Version == l.Version && w.Algorithm == l.Algorithm
}

// adopt takes over a limit's numbers, unless the ones that it has are later. As in
// the store, another Algorithm takes a higher Version.
func (x *holding) adopt(l *bucket.Limit) bool {
	w := &x.whole
	if l.Version < w.Version || l.Version == w.Version && (l.Algorithm != w.Algorithm || l.Start < w.Start) {
		return false
	}
	x.whole = *l
	return true
}

// renew ends what is at its end, and makes the limit that judges from now on.
func (h *Holdings) renew(x *holding, t Time) {
	if w := &x.whole; w.Algorithm == bucket.FixedWindow && w.Start != 0 && t.Now-w.Start >= int64(w.Per) {
		// What is unspent from now on is that of a later window, and is not to be
		// granted to who is in the one before.
		w.Start += (t.Now - w.Start) / int64(w.Per) * int64(w.Per)
	}
	capacity := x.whole.Capacity()
	until := int64(math.MaxInt64)
	var received, promised, lost int64
	doubtful := false
	ends := func(units *int64, at int64) (ended int64) {
		switch {
		case *units == 0:
		case t.Steady >= at:
			ended, *units = *units, 0
		default:
			until = min(until, at)
		}
		return ended
	}
	ends(&x.passing, x.passTill)
	for i := range x.accounts {
		if i == h.regions.self {
			continue
		}
		a := &x.accounts[i]
		lost += ends(&a.granted, a.grantedUntil)
		ends(&a.received, a.receivedUntil)
		ends(&a.promised, a.promisedTill)
		a.received = min(a.received, h.regions.start(capacity, i)) // where the limit became less
		received += a.received
		promised += a.promised
		doubtful = doubtful || !a.known
	}
	if doubtful {
		if end := h.doubt(x); t.Steady < end {
			until = min(until, end)
		} else {
			doubtful = false // whatever was granted has come back by then
			for i := range x.accounts {
				x.accounts[i].known = true
			}
		}
	}
	x.unsure = x.unsure && doubtful
	x.held, x.until = min(max(0, h.own(x)+received), capacity), until
	if x.unsure {
		x.held = 0
	}
	x.limit = portion(&x.whole, max(0, x.held-promised-x.passing))
	if lost > 0 {
		h.store.SpendElsewhere(x.id, &x.limit, t.Now, lost)
	}
}

// doubt is until when another region may have more of this one than is known here.
func (h *Holdings) doubt(x *holding) int64 {
	if !x.unsure {
		return x.copied + keptFor
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.unsure
}

// own is what this region has left of the part that it began with: below zero if
// the limit became less than what was granted of it.
func (h *Holdings) own(x *holding) int64 {
	own := h.regions.start(x.whole.Capacity(), h.regions.self)
	for i := range x.accounts {
		own -= x.accounts[i].granted
	}
	return own
}

// debt is what was spent here beyond what this region has.
func (h *Holdings) debt(x *holding, now int64) int64 {
	used, _, _ := h.store.Used(x.id, now)
	return max(0, used-x.held)
}

// portion is a limit of so many of another's units, which recover at the same part of
// its rate. A bucket's rate is that of a multiple of Per, where that is needed to
// have it exact within a thousandth; it is never above the part.
func portion(whole *bucket.Limit, units int64) bucket.Limit {
	l := *whole
	l.Whole = whole.Capacity()
	if l.Algorithm != bucket.TokenBucket && l.Algorithm != bucket.LeakyBucket {
		l.Rate = units
		return l
	}
	if units == 0 {
		l.Burst = -1
		return l
	}
	l.Burst = units
	if l.Rate == l.Whole {
		l.Rate = units
		return l
	}
	const precise, longest = 1000, int64(366 * 24 * time.Hour)
	hi, lo := bits.Mul64(uint64(l.Rate), uint64(units))
	times := uint64(1)
	if hi == 0 && lo/uint64(l.Whole) < precise && lo%uint64(l.Whole) != 0 {
		times = max(1, min(precise*uint64(l.Whole)/lo+1, uint64(longest/int64(l.Per))))
		lo *= times
	}
	rate, _ := bits.Div64(hi, lo, uint64(l.Whole))
	if l.Rate, l.Per = int64(rate), l.Per*time.Duration(times); l.Validate() != nil {
		l.Burst = -1 // what is spent would not recover in any time that counts
	}
	return l
}
