package countsync

import (
	"math"
	"slices"
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
// A grant is for a term. The region that has received it renews it while it needs it, returns
// it when it does not, and is without it when the term ends; the region that granted it
// has it back then, as spent, a margin later. So a region that is cut off, or has
// lost its memory, costs the others nothing for longer than a term and a Per, and
// nobody has to find out about it.
//
// Of each id the one node decides that answers for it. Methods are safe for
// concurrent use. What judges an id is told to the store, so that a Take by it is
// the store's alone and locks nothing here; what was spent is learned of
// afterwards, from what the store has collected.
type Holdings struct {
	regions *Regions
	self    Member
	store   *bucket.Store
	rule    rule
	reports int // of what was spent, that one round makes at most
	shards  [holdingShards]holdings

	partsUntil atomic.Int64 // until when, by the monotonic clock, the parts that the store has judge as here
	steady     atomic.Int64 // the latest time of a step
	kept       atomic.Int64 // how many
	beyond     atomic.Uint64

	mu         sync.Mutex
	knownSince int64  // since when all is remembered, by the monotonic clock
	agreed     []bool // the regions that have shown since then that they share limits out alike
	exact      bool   // of knownSince, as another node is
}

const (
	holdingShards = 256
	// maxHoldings bounds how many ids have a holding that is not the one that a
	// region begins with. Ids beyond are judged by that one.
	maxHoldings = 256 << 10
	// term is for how long a grant may be spent, from when it was asked for; and
	// keptFor how long the granting region does without, from when it stated the grant. The
	// margin is for clocks that differ in pace; and where windows are named, for
	// those that differ in the time of day: by a second, all bounds hold.
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
	// lasting is how long what judges an id has to hold good for the store to be told,
	// or for what it was told to stand when the holding is visited. Holdings are visited
	// more often than that, or the store is not asked by what it was told.
	lasting = term / 2
	// firstTrip is what a round trip to another region takes, as long as none was
	// measured.
	firstTrip = int64(200 * time.Millisecond)
)

// Time is the time of a step: Now of the clock that counts go by, and Monotonic of
// one that never steps, both in nanoseconds.
type Time struct{ Now, Monotonic int64 }

// holding is one id's. Its shard's lock guards it.
type holding struct {
	id      bucket.ID
	whole   bucket.Limit // by which it was asked for last
	part    bucket.Limit // of whole: what asks are judged by
	until   int64        // when part has to be made anew
	asked   int64        // units in all
	denied  int64        // of these
	largest int64        // ask that was denied, since the last visit
	queued  bool         // for the next batch

	held     int64     // what this region has: part, and what is promised or to be passed
	accounts []account // by index in regions; that of this one is unused
	counted  int64     // of asked, in demand
	demand   float64   // units asked for in a second, of late, as of at
	usual    float64   // and over windows
	at       int64
	lacked   int64 // when an ask was denied last
	seen     int64 // when it was last known to be asked for
	series   int64 // of what was spent
	before   int64 // units spent before the series began

	passing  int64 // received, and to go back since a third region asked for it
	passTill int64

	must     int64 // the largest ask that was denied, when more was last asked for
	keeps    int64 // of held, for a caller that was denied to come back for
	keepTill int64

	index  int   // in holdings.all
	unsure bool  // made when an id without a holding may have been forgotten
	copied int64 // when it was taken from another node
}

// account is what one region has of another, both ways.
//
// What a region has granted is never less than what the other has received of it. That no
// more than the limit is admitted over all regions relies on it. A grant is therefore
// taken off here before it is stated, and comes back only when the other has stated that
// it has less (heed), or a margin after the grant has ended there (term and keptFor). A
// region that has forgotten its grants holds nothing until they are known again (unsure).
type account struct {
	granted      int64  // to the region, that it may still have
	grantedTo    Member // the member that made its last statement
	grantedUntil int64
	moved        int64 // spent, and moved with the last grant: it counts here again if that was not taken
	heard        int64 // the number of that statement
	promised     int64 // that the region is to have as soon as it is unspent here
	promisedTill int64

	received      int64 // of the region
	receivedUntil int64
	owes          int64 // spent, and moved with what was returned, as long as the region may not know
	number        int64 // of the last statement to it
	asked         int64 // of the first that asked what it has of this region, since that is not known
	sent          int64 // when that was
	waits         bool  // for its answer
	wants         bool  // it asked for more
	again         int64 // when it is asked for more at the earliest
	refusals      int
	hint          int64 // when it may have something unspent, as it said

	known    bool  // what it has of this region: it has said so, or nothing was forgotten
	reported int64 // what was stated as spent last
	theirs   int64 // what it has stated as spent
	series   int64 // of theirs
	trip     int64 // what the last answer took
}

// NewHoldings makes those of a region, with no memory of what they were.
func NewHoldings(regions *Regions, self Member, store *bucket.Store, t Time) *Holdings {
	h := &Holdings{regions: regions, self: self, store: store, rule: byDemand, reports: Caps{}.withDefaults().Reports}
	h.Forgotten(t)
	return h
}

// Forgotten takes in that what this region's holdings were is lost, or may be: what
// others have of this region they have to say. Until they have, an id has nothing.
func (h *Holdings) Forgotten(t Time) {
	h.tick(t)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.knownSince, h.exact = t.Monotonic, false
	h.agreed = make([]bool, len(h.regions.names))
	h.agreed[h.regions.self] = true
}

// sure takes in that another node, which remembers this region's holdings but for those
// that may have been forgotten, has moved authority to this one: uncertain is what
// uncertainFor returned there.
func (h *Holdings) sure(uncertain time.Duration) {
	if h == nil || uncertain >= forever {
		return
	}
	begun := h.steady.Load() + int64(uncertain) - keptFor
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.exact {
		begun = max(begun, h.knownSince)
	}
	h.knownSince, h.exact = begun, true
	for i := range h.agreed {
		h.agreed[i] = true
	}
}

// forever is an uncertainty that ends only when the other regions have been heard.
const forever = time.Duration(1 << 60)

// uncertainFor is for how long an id without a holding may still be one that was
// forgotten: until every other region has been heard, and whatever was granted
// before this one forgot has ended.
func (h *Holdings) uncertainFor() time.Duration {
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.Contains(h.agreed, false) {
		return forever
	}
	return time.Duration(max(0, h.knownSince+keptFor-h.steady.Load()))
}

func (h *Holdings) tick(t Time) {
	for last := h.steady.Load(); t.Monotonic > last && !h.steady.CompareAndSwap(last, t.Monotonic); last = h.steady.Load() {
	}
}

// Kept is how many ids have a holding.
func (h *Holdings) Kept() int { return int(h.kept.Load()) }

// Beyond is how often an id was asked for that there was no room to keep one of.
func (h *Holdings) Beyond() uint64 { return h.beyond.Load() }

// ids are those that have a holding.
func (h *Holdings) ids() (ids []bucket.ID) {
	if h == nil {
		return nil
	}
	for i := range h.shards {
		sh := &h.shards[i]
		sh.mu.Lock()
		for _, x := range sh.all {
			ids = append(ids, x.id)
		}
		sh.mu.Unlock()
	}
	return ids
}

func (h *Holdings) shard(id bucket.ID) *holdings { return &h.shards[id.Lo%holdingShards] }

// lock locks the shard of id and returns it.
func (h *Holdings) lock(id bucket.ID) *holdings {
	sh := h.shard(id)
	sh.mu.Lock()
	return sh
}

// Take is the store's, within what this region has.
func (h *Holdings) Take(id bucket.ID, whole *bucket.Limit, t Time, units int64, r *bucket.Result) {
	if t.Monotonic < h.partsUntil.Load() && h.store.TakePart(id, whole, t.Now, units, r) {
		if !r.Allowed || halves(units, r) {
			sh := h.lock(id)
			h.took(sh, h.holdingOf(sh, id, whole, t), units, t, r)
			sh.mu.Unlock()
		}
		return
	}
	sh := h.lock(id)
	defer sh.mu.Unlock()
	x, l := h.judge(sh, id, whole, t)
	h.store.TakeInto(id, l, t.Now, units, r)
	h.setPart(x, t)
	h.took(sh, x, units, t, r)
}

// setPart has the store judge asks by the part of a holding, if that lasts for long enough.
// x may be nil.
func (h *Holdings) setPart(x *holding, t Time) {
	if x != nil && t.Monotonic < h.partsUntil.Load() && x.until-t.Monotonic >= lasting {
		h.store.SetPart(x.id, &x.part)
	}
}

// Lend is the store's, within what this region has.
func (h *Holdings) Lend(id bucket.ID, whole *bucket.Limit, t Time, units int64, want bucket.Lease, least time.Duration, lent bucket.Lease, r *bucket.Result) (granted bucket.Lease) {
	sh := h.lock(id)
	defer sh.mu.Unlock()
	x, l := h.judge(sh, id, whole, t)
	granted = h.store.Lend(id, l, t.Now, units, want, least, lent, r)
	h.took(sh, x, units, t, r)
	return granted
}

// Debit is the store's, of what this region has.
func (h *Holdings) Debit(id bucket.ID, whole *bucket.Limit, t Time, units int64) (r bucket.Result) {
	sh := h.lock(id)
	defer sh.mu.Unlock()
	x, l := h.judge(sh, id, whole, t)
	r = h.store.Debit(id, l, t.Now, units)
	if x != nil && 2*r.Remaining <= r.Limit {
		sh.push(x)
	}
	return r
}

// halves reports whether a take has left half of the limit or less, and was the first.
func halves(units int64, r *bucket.Result) bool {
	return 2*r.Remaining <= r.Limit && 2*(r.Remaining+units) > r.Limit
}

// TakeAll is the store's, each of whose asks with a whole is within what this
// region has of that. The ids are distinct.
func (h *Holdings) TakeAll(asks []bucket.Ask, wholes []*bucket.Limit, t Time, answers []bucket.Result) bool {
	if t.Monotonic < h.partsUntil.Load() {
		if all, known := h.store.TakeAllParts(asks, wholes, t.Now, answers); known {
			for i := range asks {
				r := &answers[i]
				if wholes[i] != nil && (!r.Allowed || all && halves(asks[i].Units, r)) {
					sh := h.lock(asks[i].ID)
					h.took(sh, h.holdingOf(sh, asks[i].ID, wholes[i], t), asks[i].Units, t, r)
					sh.mu.Unlock()
				}
			}
			return all
		}
	}
	var (
		few [16]uint64
		xs  [16]*holding
	)
	shards, judges := few[:0], append(xs[:0], make([]*holding, len(asks))...)
	for i := range asks {
		if wholes[i] != nil {
			shards = append(shards, asks[i].ID.Lo%holdingShards)
		}
	}
	// Every caller locks several shards in one order, so that none waits in a circle.
	slices.Sort(shards)
	shards = slices.Compact(shards)
	for _, i := range shards {
		h.shards[i].mu.Lock()
	}
	for i := range asks {
		if wholes[i] != nil {
			judges[i], asks[i].Limit = h.judge(h.shard(asks[i].ID), asks[i].ID, wholes[i], t)
		}
	}
	all := h.store.TakeAll(asks, t.Now, answers)
	for i, x := range judges {
		if x != nil && (all || !answers[i].Allowed) {
			h.setPart(x, t)
			h.took(h.shard(x.id), x, asks[i].Units, t, &answers[i])
		}
	}
	for _, i := range shards {
		h.shards[i].mu.Unlock()
	}
	return all
}

// took notes what an ask came to. The shard is locked; x may be nil.
func (h *Holdings) took(sh *holdings, x *holding, units int64, t Time, r *bucket.Result) {
	if x == nil {
		return
	}
	if !r.Allowed {
		h.refuse(x, units, t, r)
	}
	if !r.Allowed || 2*r.Remaining <= r.Limit {
		sh.push(x)
	}
}

// Lacks notes that so many units are wanted of a count that this region has no room for
// now, as a Take that is denied does.
func (h *Holdings) Lacks(id bucket.ID, whole *bucket.Limit, t Time, units int64) {
	sh := h.lock(id)
	defer sh.mu.Unlock()
	if x, _ := h.judge(sh, id, whole, t); x != nil {
		h.refuse(x, units, t, new(bucket.Result))
		sh.push(x)
	}
}

// refuse notes a denial, and says when more may have come from elsewhere.
func (h *Holdings) refuse(x *holding, units int64, t Time, r *bucket.Result) {
	x.asked += units
	x.denied += units
	x.largest = max(x.largest, units)
	x.lacked = t.Monotonic
	if x.held >= x.whole.Capacity() {
		return // there is none
	}
	for i := range x.accounts {
		a := &x.accounts[i]
		trip := a.trip
		if trip == 0 {
			trip = firstTrip
		}
		if i != h.regions.self {
			r.RetryAfter = min(r.RetryAfter, time.Duration(max(0, a.again-t.Monotonic, a.hint-t.Monotonic)+int64(ExchangeEvery)+trip))
		}
	}
	if r.Remaining == 0 && !x.whole.IsBucket() {
		r.ResetAfter = r.RetryAfter // a unit may be there then
	}
}

// Limit is what judges id here.
func (h *Holdings) Limit(id bucket.ID, whole *bucket.Limit, t Time) bucket.Limit {
	sh := h.lock(id)
	defer sh.mu.Unlock()
	_, l := h.judge(sh, id, whole, t)
	return *l
}

// noteSpent notes units that the store has collected as spent here, less those that were
// refunded.
func (h *Holdings) noteSpent(id bucket.ID, units int64) {
	if h == nil || units == 0 {
		return
	}
	sh := h.lock(id)
	defer sh.mu.Unlock()
	switch x := sh.of[id]; {
	case x == nil:
	case units < 0:
		x.denied -= units
	default:
		x.asked += units
	}
}

// judge returns id's holding, and the limit that judges asks by this one now: its part. If
// there is no room for a holding, x is nil, and the limit is the part that the region begins
// with. The shard is locked.
func (h *Holdings) judge(sh *holdings, id bucket.ID, whole *bucket.Limit, t Time) (x *holding, l *bucket.Limit) {
	x = h.holdingOf(sh, id, whole, t)
	if x == nil {
		units := int64(0)
		if h.uncertainFor() == 0 {
			units = h.regions.start(whole.Capacity(), h.regions.self)
		}
		initial := whole.Part(units)
		return nil, &initial
	}
	if x.adopt(whole) {
		h.renew(x, t)
	}
	return x, &x.part
}

// holdingOf is id's, up to date; nil if there is none and no room. The shard is
// locked.
func (h *Holdings) holdingOf(sh *holdings, id bucket.ID, whole *bucket.Limit, t Time) *holding {
	x := sh.of[id]
	if x != nil {
		if t.Monotonic >= x.until {
			h.renew(x, t)
		}
		return x
	}
	if h.kept.Add(1) > maxHoldings {
		h.kept.Add(-1)
		h.beyond.Add(1)
		return nil
	}
	x = &holding{id: id, whole: *whole, accounts: make([]account, len(h.regions.names)), at: t.Monotonic, seen: t.Monotonic, series: t.Now}
	x.unsure = h.uncertainFor() > 0
	for i := range x.accounts {
		x.accounts[i].known = !x.unsure || i == h.regions.self
	}
	h.renew(x, t)
	sh.add(x)
	return x
}

// adopt takes over a limit's numbers, unless the ones that it has are later. As in
// the store, another Algorithm takes a higher Version.
func (x *holding) adopt(l *bucket.Limit) bool {
	w := &x.whole
	if *l == *w || l.Version < w.Version || l.Version == w.Version && (l.Algorithm != w.Algorithm || l.Algorithm == bucket.FixedWindow && l.Start < w.Start) {
		return false
	}
	x.whole = *l
	return true
}

// renew ends what is at its end, and makes what judges from now on.
func (h *Holdings) renew(x *holding, t Time) {
	if w := &x.whole; x.over(t.Now) {
		// What is unspent from now on is that of a later window, and is not to be
		// granted to a region that is in the one before.
		w.Start += (t.Now - w.Start) / int64(w.Per) * int64(w.Per)
	}
	capacity := x.whole.Capacity()
	until := int64(math.MaxInt64)
	var received, promised, lost int64
	uncertain := false
	ends := func(units *int64, at int64) (ended int64) {
		switch {
		case *units == 0:
		case t.Monotonic >= at:
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
		uncertain = uncertain || !a.known
	}
	if uncertain {
		if end := h.uncertainUntil(x, t.Monotonic); t.Monotonic < end {
			until = min(until, end)
		} else {
			uncertain = false // whatever was granted has come back by then
			for i := range x.accounts {
				x.accounts[i].known = true
			}
		}
	}
	x.unsure = x.unsure && uncertain
	if x.held = min(max(0, h.own(x)+received), capacity); x.unsure {
		x.held = 0
	}
	part := x.whole.Part(max(0, x.held-promised-x.passing))
	if part != x.part || until-t.Monotonic < lasting {
		h.store.ClearPart(x.id)
	}
	x.part, x.until = part, until
	if lost > 0 {
		h.store.SpendElsewhere(x.id, &x.part, t.Now, lost)
	}
}

// over reports whether the window that was named has ended. The store forgets its count
// when it is next asked by other numbers; by its name it must not be asked for
// again, should the clock step back.
func (x *holding) over(now int64) bool {
	w := &x.whole
	return w.Algorithm == bucket.FixedWindow && w.Start != 0 && now-w.Start >= int64(w.Per)
}

// uncertainUntil is until when another region may have more of this one than is known here,
// or when that is to be asked again.
func (h *Holdings) uncertainUntil(x *holding, steady int64) int64 {
	if !x.unsure {
		return x.copied + keptFor
	}
	return steady + int64(min(h.uncertainFor(), time.Second))
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

// spent is how many units were spent here since the series began.
func (x *holding) spent() int64 { return max(0, x.asked-x.denied-x.before) }

// recovered begins the series anew when nothing is used any more: a region that hears of it
// from then on, and knows nothing of what was before, counts only what is used.
// What was not told by then needs no telling.
func (x *holding) recovered(now int64) {
	if spent := x.spent(); spent > 0 {
		x.before += spent
		x.series = max(x.series+1, now)
	}
	for i := range x.accounts {
		x.accounts[i].reported = 0
	}
}

// debt is what was spent here beyond what this region has.
func (h *Holdings) debt(x *holding, now int64) int64 {
	used, _, _ := h.store.Used(x.id, now)
	return max(0, used-x.held)
}
