package countsync

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
)

// Holdings contains the units of Global limits that this region has. A region starts with its
// initial part of each limit. It grants units of this part to other regions, and receives units of
// their parts. Granted units are subtracted here before the grant is stated. They are unspent, except
// in a bucket, where spent units can move with the grant (release). A region never grants received
// units, which return to the region that granted them. The account between two regions does not
// depend on any other region. So the units of all regions sum to the limit at most, and each region
// uses only the units that it has.
//
// A grant has a term. The region that has received a grant renews it while the units are needed,
// returns units that are not needed, and loses the rest when the term ends. The region that has
// granted these units adds them to its own as spent units, after a margin. If a region is
// disconnected, or has lost its memory, the other regions therefore lack units only for a term, the
// margin and a Per, and no region has to detect this.
//
// For each id, only the node that answers for it decides. Methods are safe for concurrent use.
// The store is given the limit that judges an id, so that TakeUnits needs only the store,
// and no lock here. The holdings learn of the spent units later, from the changes that the store
// has collected.
type Holdings struct {
	regions *Regions
	self    Member
	store   *bucket.Store
	rule    rule // the rule by which units are divided between two regions
	reports int  // maximum number of statements in a round that only report spent units
	shards  [holdingShards]holdingShard

	partsUntil atomic.Int64  // monotonic time until which the parts in the store judge as the holdings do
	monotonic  atomic.Int64  // monotonic time of the latest step
	kept       atomic.Int64  // number of holdings
	beyond     atomic.Uint64 // number of times that there was no room for a holding

	mu         sync.Mutex
	knownSince int64  // monotonic time since which all holdings are remembered
	agreed     []bool // whether a region has shown since then that it divides limits in the same way
	exact      bool   // knownSince comes from a node that has transferred authority to this node
}

const (
	holdingShards = 256
	// maxHoldings is the maximum number of holdings. The initial part of the region judges all
	// further ids, which have no units as long as a holding may have been forgotten (judge).
	maxHoldings = 256 << 10
	// term is the time for which a grant may be spent, from the time when it was requested.
	// keptFor is the time for which the granting region does without the units, from the time
	// when it stated the grant. The margin is necessary because clocks may run at different
	// speeds. If windows are named, all bounds hold as long as clocks differ by at most a
	// second in the time of day.
	term    = int64(10 * time.Second)
	keptFor = term + term/8
	// renewAfter is the time after which a grant is requested again.
	renewAfter = term / 3
	// ExchangeEvery is the minimum time between two statements about an id to a region.
	ExchangeEvery = 100 * time.Millisecond
	// answerTimeout is the time after which a statement without an answer is made again.
	answerTimeout = int64(2 * time.Second)
	// longestRefusal is the maximum time from a refused request to the next request.
	longestRefusal = int64(5 * time.Second)
	// validFor is the time for which a part must remain valid to be set in the store, or
	// to stay there when the holding is visited. Holdings are visited more often than
	// that. If they are not, the parts in the store are not used.
	validFor = term / 2
	// firstTrip is the assumed round-trip time to another region before the first measurement.
	firstTrip = int64(200 * time.Millisecond)
)

// Time is the time of a step: Now by the clock of the counts, and Monotonic by a clock that never
// steps, both in nanoseconds.
type Time struct{ Now, Monotonic int64 }

// holding contains the units of this region for an id. The lock of its shard protects a holding.
type holding struct {
	id      bucket.ID
	whole   bucket.Limit // latest numbers of the limit, without a Keep
	part    bucket.Limit // the part of the limit that judges asks
	keep    int64        // Keep of the last ask that had one
	until   int64        // monotonic time at which part must be computed again
	asked   int64        // number of units that were asked for
	denied  int64        // number of these units that were denied or refunded
	largest int64        // largest ask that was denied since the last visit
	queued  bool         // whether the holding is in the next batch

	held     int64     // units of this region: the units of part, the promised units, and the units in passing
	accounts []account // one for each index in regions; the account of this region is not used
	counted  int64     // number of asked units at the last update of demand, with uncollected units
	demand   float64   // recent demand in units per second, at the last update
	usual    float64   // demand, averaged over a longer time (usualSpan)
	at       int64     // monotonic time of the last update of demand and usual
	lacked   int64     // monotonic time of the last denial, or of the last call of Lacks
	seen     int64     // monotonic time at which the id was last known to be asked for
	series   int64     // series of the spent units
	before   int64     // number of units that were spent before the series began

	passing  int64 // received units that are returned because a third region asked for them
	passTill int64 // monotonic time until which passing is reserved

	must     int64 // the largest ask that was denied and for which units were requested
	keeps    int64 // number of units in held that are reserved for a caller after a denial
	keepTill int64 // monotonic time until which these units are reserved

	index  int   // index in holdingShard.all
	unsure bool  // whether this holding was added when an earlier holding of the id may have been forgotten
	copied int64 // monotonic time at which the holding was copied from another node
}

// account contains the units that this region has granted to another region, and the units that
// it has received from that region. All times are monotonic.
//
// The granted units are never less than the units that the other region has received. The bound
// on the units that all regions admit relies on this. A grant is therefore subtracted here before
// it is stated. Units come back only when the other region has stated that it has fewer
// (applyReceived), or a margin after the grant has ended there (term and keptFor). A region that
// has forgotten its grants has no units until the grants are known again (unsure).
type account struct {
	granted      int64  // units granted to the region, which it may still have
	grantedTo    Member // member that decided about the id in the region when the region made its last statement
	grantedUntil int64  // the monotonic time until which this region does not use the granted units
	moved        int64  // spent units that moved with the last grant; if the grant is not accepted, they count here again
	heard        int64  // number of the last statement of the region
	promised     int64  // units that the region gets as soon as they are unspent here
	promisedTill int64  // the monotonic time until which the promised units are reserved

	received      int64 // units received from the region
	receivedUntil int64 // monotonic time until which the received units may be spent
	owes          int64 // spent units that moved with returned units, as long as the region may not know of them
	number        int64 // number of the last statement to the region
	asked         int64 // number of the first statement that asked which units of this region the other region has; used while that is not known
	sent          int64 // monotonic time of the last statement to the region
	waits         bool  // the last statement has no answer yet
	wants         bool  // the last statement was a request for units
	again         int64 // monotonic time of the next request for units at the earliest
	refusals      int   // number of requests for units in a row that were refused or not answered, at most 10
	hint          int64 // monotonic time at which the region may have unspent units, by its own statement; 0 if not stated

	known    bool  // this node knows how many units of this region the other region has: the region has stated the number, or no grants were forgotten
	reported int64 // spent units that were last stated to the region
	theirs   int64 // number of units that the region has stated as spent
	series   int64 // series of theirs
	trip     int64 // round-trip time of the last answer
}

// NewHoldings returns the holdings of a region that remembers no earlier holdings.
func NewHoldings(regions *Regions, self Member, store *bucket.Store, t Time) *Holdings {
	h := &Holdings{regions: regions, self: self, store: store, rule: byDemand, reports: Caps{}.withDefaults().Reports}
	h.Forgotten(t)
	return h
}

// Forgotten records that the holdings of this region are lost, or may be. The other regions must
// state the units that they have of this region. An id without a holding has no units until all
// other regions have stated their units of the id, or until all other regions have been heard and
// all earlier grants have ended.
func (h *Holdings) Forgotten(t Time) {
	h.tick(t)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.knownSince, h.exact = t.Monotonic, false
	h.agreed = make([]bool, len(h.regions.names))
	h.agreed[h.regions.self] = true
}

// inheritKnowledge records that another node has transferred authority to this node. That node has
// the holdings of this region, but earlier holdings may have been lost before they reached it. The
// argument uncertain is the time for which this remains possible: the result of uncertainFor on that
// node.
func (h *Holdings) inheritKnowledge(uncertain time.Duration) {
	if h == nil || uncertain >= forever {
		return
	}
	begun := h.monotonic.Load() + int64(uncertain) - keptFor
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

// forever is the result of uncertainFor until all other regions have been heard.
const forever = time.Duration(1 << 60)

// uncertainFor returns how much longer an id without a holding may be an id whose holding was
// forgotten: until every other region has been heard, and all grants from before Forgotten
// have ended.
func (h *Holdings) uncertainFor() time.Duration {
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.Contains(h.agreed, false) {
		return forever
	}
	return time.Duration(max(0, h.knownSince+keptFor-h.monotonic.Load()))
}

func (h *Holdings) tick(t Time) {
	for last := h.monotonic.Load(); t.Monotonic > last && !h.monotonic.CompareAndSwap(last, t.Monotonic); last = h.monotonic.Load() {
	}
}

// Len returns the number of holdings.
func (h *Holdings) Len() int { return int(h.kept.Load()) }

// Rejections returns how often there was no room for a holding.
func (h *Holdings) Rejections() uint64 { return h.beyond.Load() }

// ids returns a list of all ids that have a holding.
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

func (h *Holdings) shard(id bucket.ID) *holdingShard { return &h.shards[id.Lo%holdingShards] }

// lock locks the shard of id and returns it.
func (h *Holdings) lock(id bucket.ID) *holdingShard {
	sh := h.shard(id)
	sh.mu.Lock()
	return sh
}

// TakeUnits is like Store.TakeInto, within the units that this region has.
func (h *Holdings) TakeUnits(id bucket.ID, whole *bucket.Limit, t Time, units int64, r *bucket.Result) {
	if t.Monotonic < h.partsUntil.Load() && h.store.TakePart(id, whole, t.Now, units, r) {
		if !r.Allowed || reachesHalf(units, r) {
			sh := h.lock(id)
			h.recordTake(sh, h.holdingOf(sh, id, whole, t), units, t, r)
			sh.mu.Unlock()
		}
		return
	}
	sh := h.lock(id)
	defer sh.mu.Unlock()
	x, l := h.judge(sh, id, whole, t)
	h.store.TakeInto(id, l, t.Now, units, r)
	h.setPart(x, t)
	h.recordTake(sh, x, units, t, r)
}

// setPart makes the store judge asks by the part of a holding, if the part is valid for long
// enough. x may be nil.
func (h *Holdings) setPart(x *holding, t Time) {
	if x != nil && t.Monotonic < h.partsUntil.Load() && x.until-t.Monotonic >= validFor {
		h.store.SetPart(x.id, &x.part)
	}
}

// Lend is like Store.Lend, within the units that this region has.
func (h *Holdings) Lend(id bucket.ID, whole *bucket.Limit, t Time, units int64, want bucket.Lease, spendTime time.Duration, lent bucket.Lease, r *bucket.Result) (granted bucket.Lease) {
	sh := h.lock(id)
	defer sh.mu.Unlock()
	x, l := h.judge(sh, id, whole, t)
	granted = h.store.Lend(id, l, t.Now, units, want, spendTime, lent, r)
	h.recordTake(sh, x, units, t, r)
	return granted
}

// Debit is like Store.Debit, with the limit that judges id in this region.
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

// reachesHalf reports whether a take was the first to leave half of the limit or less.
func reachesHalf(units int64, r *bucket.Result) bool {
	return 2*r.Remaining <= r.Limit && 2*(r.Remaining+units) > r.Limit
}

// TakeAll is like Store.TakeAll, but if wholes[i] is not nil, asks[i] is judged within the
// units that this region has of wholes[i]. The ids must be distinct. The slice wholes must have
// the length of asks.
func (h *Holdings) TakeAll(asks []bucket.Ask, wholes []*bucket.Limit, t Time, answers []bucket.Result) bool {
	if t.Monotonic < h.partsUntil.Load() {
		if all, known := h.store.TakeAllParts(asks, wholes, t.Now, answers); known {
			for i := range asks {
				r := &answers[i]
				if wholes[i] != nil && (!r.Allowed || all && reachesHalf(asks[i].Units, r)) {
					sh := h.lock(asks[i].ID)
					h.recordTake(sh, h.holdingOf(sh, asks[i].ID, wholes[i], t), asks[i].Units, t, r)
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
	// Every caller locks the shards in the same order, so that there is no deadlock.
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
			h.recordTake(h.shard(x.id), x, asks[i].Units, t, &answers[i])
		}
	}
	for _, i := range shards {
		h.shards[i].mu.Unlock()
	}
	return all
}

// recordTake handles the result of an ask. The caller must hold the lock of the shard. x may be
// nil.
func (h *Holdings) recordTake(sh *holdingShard, x *holding, units int64, t Time, r *bucket.Result) {
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

// Lacks records that this region needs units for which it has no room now. A denied call of
// TakeUnits records the same.
func (h *Holdings) Lacks(id bucket.ID, whole *bucket.Limit, t Time, units int64) {
	sh := h.lock(id)
	defer sh.mu.Unlock()
	if x, _ := h.judge(sh, id, whole, t); x != nil {
		h.refuse(x, units, t, new(bucket.Result))
		sh.push(x)
	}
}

// refuse records a denial, and limits RetryAfter to the time at which other regions may have
// granted more units.
func (h *Holdings) refuse(x *holding, units int64, t Time, r *bucket.Result) {
	x.asked += units
	x.denied += units
	x.largest = max(x.largest, units)
	x.lacked = t.Monotonic
	if x.held >= x.whole.Capacity() {
		return // no region has more
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
}

// Limit returns the limit that judges id in this region.
func (h *Holdings) Limit(id bucket.ID, whole *bucket.Limit, t Time) bucket.Limit {
	sh := h.lock(id)
	defer sh.mu.Unlock()
	_, l := h.judge(sh, id, whole, t)
	return *l
}

// recordSpent records units that the store has collected as spent in this region. Negative units
// were refunded.
func (h *Holdings) recordSpent(id bucket.ID, units int64) {
	if h == nil || units == 0 {
		return
	}
	sh := h.lock(id)
	defer sh.mu.Unlock()
	switch x := sh.byID[id]; {
	case x == nil:
	case units < 0:
		x.denied -= units
	default:
		x.asked += units
	}
}

// judge returns the holding of id, and the limit by which this region judges asks now: the part
// of the holding. If there is no room for a holding, x is nil, and the limit is the initial part
// of the region, or has no units as long as the holding may have been forgotten. The caller must
// hold the lock of the shard.
func (h *Holdings) judge(sh *holdingShard, id bucket.ID, whole *bucket.Limit, t Time) (x *holding, l *bucket.Limit) {
	x = h.holdingOf(sh, id, whole, t)
	if x == nil {
		units := int64(0)
		if h.uncertainFor() == 0 {
			units = h.regions.start(whole.Capacity(), h.regions.self)
		}
		initial := whole.Scale(units)
		return nil, new(initial.Keeping(whole))
	}
	if x.adopt(whole) {
		h.renew(x, t)
	}
	if whole.Keep > 0 {
		return x, new(x.part.Keeping(whole))
	}
	return x, &x.part
}

// holdingOf returns the holding of id, and renews it if necessary. holdingOf adds a missing
// holding, or returns nil if there is no room. The caller must hold the lock of the shard.
func (h *Holdings) holdingOf(sh *holdingShard, id bucket.ID, whole *bucket.Limit, t Time) *holding {
	x := sh.byID[id]
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
	x.whole.Keep = 0
	x.unsure = h.uncertainFor() > 0
	for i := range x.accounts {
		x.accounts[i].known = !x.unsure || i == h.regions.self
	}
	h.renew(x, t)
	sh.add(x)
	return x
}

// keptOf returns the number of kept units among the given units of the region. A region must not release
// kept units: as part of the units of the receiver, most of them would not be kept any more.
func (x *holding) keptOf(units int64) int64 {
	part, whole := bucket.Limit{Rate: units}, bucket.Limit{Rate: x.whole.Capacity(), Keep: x.keep}
	kept := part.Keeping(&whole)
	return kept.Keep
}

// usable returns the part of the region with the Keep that applies to ordinary checks.
func (x *holding) usable() bucket.Limit {
	l := x.part
	l.Keep = x.keptOf(l.Capacity())
	return l
}

// adopt replaces the numbers of the limit, unless x has later numbers, and reports whether it
// did. As in the store, another Algorithm requires a higher Version.
func (x *holding) adopt(l *bucket.Limit) bool {
	w, numbers := &x.whole, *l
	numbers.Keep = 0
	if l.Keep > 0 {
		x.keep = l.Keep
	}
	if numbers == *w || l.Version < w.Version || l.Version == w.Version && (l.Algorithm != w.Algorithm || l.Algorithm == bucket.FixedWindow && l.Start < w.Start) {
		return false
	}
	x.whole = numbers
	return true
}

// renew ends the grants and promises that have expired, and computes the part that judges from
// now on.
func (h *Holdings) renew(x *holding, t Time) {
	if w := &x.whole; x.windowEnded(t.Now) {
		// Units that are unspent from now on belong to a later window. They must not be granted
		// to a region that is still in the previous window.
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
		a.received = min(a.received, h.regions.start(capacity, i)) // the limit may have become lower
		received += a.received
		promised += a.promised
		uncertain = uncertain || !a.known
	}
	if uncertain {
		if end := h.uncertainUntil(x, t.Monotonic); t.Monotonic < end {
			until = min(until, end)
		} else {
			uncertain = false // by then, all grants have ended
			for i := range x.accounts {
				x.accounts[i].known = true
			}
		}
	}
	x.unsure = x.unsure && uncertain
	if x.held = min(max(0, h.ownUnits(x)+received), capacity); x.unsure {
		x.held = 0
	}
	part := x.whole.Scale(max(0, x.held-promised-x.passing))
	if part != x.part || until-t.Monotonic < validFor {
		h.store.ClearPart(x.id)
	}
	x.part, x.until = part, until
	if lost > 0 {
		h.store.SpendElsewhere(x.id, &x.part, t.Now, lost)
	}
}

// windowEnded reports whether the named window has ended. The store forgets the count of the
// window when an ask has other numbers. The window must not be named again, even if the clock
// steps back.
func (x *holding) windowEnded(now int64) bool {
	w := &x.whole
	return w.Algorithm == bucket.FixedWindow && w.Start != 0 && now-w.Start >= int64(w.Per)
}

// uncertainUntil returns the time until which another region may have more units of this region
// than is known here, or at which this must be checked again.
func (h *Holdings) uncertainUntil(x *holding, monotonic int64) int64 {
	if !x.unsure {
		return x.copied + keptFor
	}
	return monotonic + int64(min(h.uncertainFor(), time.Second))
}

// ownUnits returns the number of units that are left of the initial part of this region. The
// result is negative if the limit became lower than the granted units.
func (h *Holdings) ownUnits(x *holding) int64 {
	own := h.regions.start(x.whole.Capacity(), h.regions.self)
	for i := range x.accounts {
		own -= x.accounts[i].granted
	}
	return own
}

// spent returns the number of units that were spent here since the series began.
func (x *holding) spent() int64 { return max(0, x.asked-x.denied-x.before) }

// startSeries starts a new series if any units were spent. It must be called only when no
// units are used any more. Another region that has not heard of the earlier series then counts only
// units that are still used. Units that were not reported before need not be reported.
func (x *holding) startSeries(now int64) {
	if spent := x.spent(); spent > 0 {
		x.before += spent
		x.series = max(x.series+1, now)
	}
	for i := range x.accounts {
		x.accounts[i].reported = 0
	}
}

// debt returns the number of units that were spent here in excess of the units of this region.
func (h *Holdings) debt(x *holding, now int64) int64 {
	used, _, _ := h.store.Used(x.id, now)
	return max(0, used-x.held)
}
