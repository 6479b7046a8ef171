package countsync

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weir-go/weir/bucket"
)

const (
	ms  = int64(time.Millisecond)
	sec = int64(time.Second)
)

// globe simulates several regions. Each region has a single node, which answers for all ids, and
// its own clocks. The network between the regions can delay, lose, repeat and reorder messages,
// and can be cut. All random choices follow from the seed.
type globe struct {
	t       failer
	rand    *rand.Rand
	limit   bucket.Limit
	ids     []bucket.ID
	net     network
	regions []*region
	rule    rule

	now    int64
	events events
	seq    int
	cut    [8][8]bool // whether messages from a region to another region are lost
	flying []*post    // answers that are on their way; an answer may arrive twice

	admitted []spell
	charges  []spell // units that a region has counted, and that no ask there has taken
	lost     int64   // units whose count or grant may have been lost in a crash
	lostTill int64   // time until which the loss can be visible
	members  Member
	said     traffic
	asks     struct{ granted, denied int64 }
	stepped  bool  // a clock of counts was set forward
	setBack  bool  // a clock of counts was set back, so that recovered units count as used again
	apart    int64 // largest difference between the clocks of counts
}

type network struct {
	delay, jitter int64
	lose, repeat  float64
	late          int64 // maximum additional delay of a repetition
}

type traffic struct{ statements, messages, bytes int64 }

// spell contains units that were admitted or charged at a time, and the window in which they count.
type spell struct {
	at, units, window int64
	region            int
}

// region is a region of a globe, with its single node.
type region struct {
	w        *globe
	index    int
	name     string
	regions  *Regions
	member   Member
	holdings *Holdings
	store    *bucket.Store
	ahead    int64 // offset of Now from the true time
	begun    int64 // offset of Monotonic
	wall     int64 // offset of the asking node's clock, which determines the start of a window
	copies   []savedCopy
	admitted int64          // units that the node of the region and the nodes before it have admitted
	answers  map[int64]bool // unanswered messages, by serial number
}

// savedCopy is the copy of an id on a successor.
type savedCopy struct {
	holding   []byte
	uncertain time.Duration
	count     []bucket.Count
	accounts  []account // accounts at the time of the copy
	spent     int64     // units admitted in the region until the time of the copy
}

type post struct {
	from, to int
	bytes    []byte
	serial   int64 // serial number of this message, or of the message that it answers
	member   Member
	answer   bool
	times    int // number of arrivals that have not happened yet
}

type event struct {
	at  int64
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

const epoch = int64(1_767_225_600_000_000_000) // in 2026, a multiple of all values of Per here

func newGlobe(t failer, seed uint64, regions int, limit bucket.Limit, net network) *globe {
	w := &globe{
		t: t, rand: rand.New(rand.NewPCG(seed, 0x776f726c64)), limit: limit, net: net, rule: byDemand,
		now: epoch, ids: []bucket.ID{{Hi: 0x2545f4914f6cdd1d, Lo: 0xd1342543de82ef95}},
	}
	var names []string
	for i := range regions {
		names = append(names, fmt.Sprintf("r%d", i))
	}
	for i, name := range names {
		r := &region{w: w, index: i, name: name, regions: NewRegions(name, names, nil), answers: make(map[int64]bool)}
		w.regions = append(w.regions, r)
		r.restart(nil)
		w.after(w.rand.Int64N(100*ms), r.tick)
	}
	return w
}

func (w *globe) after(d int64, do func()) {
	w.seq++
	heap.Push(&w.events, event{w.now + d, w.seq, do})
}

// run advances the time.
func (w *globe) run(d int64) {
	end := w.now + d
	for len(w.events) > 0 && w.events[0].at <= end {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
	w.now = end
}

func (w *globe) fail(format string, args ...any) {
	w.t.Fatalf("after %v: %s", time.Duration(w.now-epoch), fmt.Sprintf(format, args...))
}

func (r *region) time() Time {
	return Time{Now: r.w.now + r.ahead, Monotonic: r.w.now - epoch + r.begun}
}

// restart replaces the node of the region by another node. The new node has a copy of each id, or
// no data if copies is nil.
func (r *region) restart(copies []savedCopy) {
	w := r.w
	w.members++
	r.member = w.members
	r.begun = 1 + w.rand.Int64N(1000*sec)
	clear(r.answers)
	r.store = bucket.NewStore(1024, bucket.Salt{})
	r.store.Track(r.member, 1, nil)
	t := r.time()
	r.holdings = NewHoldings(r.regions, r.member, r.store, t)
	r.holdings.rule = func(d demands, both, theirs, unspent int64) int64 { return w.rule(d, both, theirs, unspent) }
	r.copies = nil
	if copies == nil {
		return
	}
	r.holdings.inheritKnowledge(copies[0].uncertain)
	for i, id := range w.ids {
		var known limits
		if len(copies[i].holding) > 0 {
			rd := reader{b: copies[i].holding}
			r.holdings.adoptCopy(id, &rd, &known, t.Now)
			if rd.err != nil || len(rd.b) > 0 {
				w.fail("copy: %v, and %d bytes", rd.err, len(rd.b))
			}
		}
		for j := range copies[i].count {
			r.store.Import(id, &copies[i].count[j], t.Now, 0)
		}
	}
	r.copies = copies
}

// saveCopies saves the data with which the next node will start.
func (r *region) saveCopies() {
	w := r.w
	t := r.time()
	r.copies = nil
	for i, id := range w.ids {
		var known limits
		d := savedCopy{holding: r.holdings.appendCopy(nil, id, &known), uncertain: r.holdings.uncertainFor()}
		var mark bucket.Mark
		for more := true; more; {
			var c bucket.Count
			mark, more, _ = r.store.Export(id, t.Now, mark, &c)
			d.count = append(d.count, c)
		}
		if x := r.holding(i); x != nil {
			d.accounts = slices.Clone(x.accounts)
		}
		d.spent = r.admitted
		r.copies = append(r.copies, d)
	}
}

// crash ends the node of the region. The next node has the copies, or no data.
func (r *region) crash(wholly bool) {
	w := r.w
	copies := r.copies
	if wholly {
		copies = nil
	}
	for i := range w.ids {
		// The following units are lost: after the crash, no count and no account contains them.
		x := r.holding(i)
		if copies == nil {
			w.lost += 2 * w.limit.Capacity()
		} else {
			w.lost += r.admitted - copies[i].spent
			for j := range r.regions.names {
				var before account
				if copies[i].accounts != nil {
					before = copies[i].accounts[j]
				}
				if x != nil {
					w.lost += max(0, x.accounts[j].granted-before.granted) + max(0, before.received-x.accounts[j].received)
				}
			}
		}
	}
	w.lostTill = w.now + 4*sec
	r.restart(copies)
}

func (r *region) holding(i int) *holding {
	id := r.w.ids[i]
	return r.holdings.shard(id).byID[id]
}

// tick does the periodic work of a node, ten times a second.
func (r *region) tick() {
	w := r.w
	_, changes := r.store.Collect(0, math.MaxInt, false, nil)
	for _, c := range changes {
		r.holdings.recordSpent(c.ID, c.Units)
	}
	r.recordCharges(func() {
		due, changed := r.holdings.Due(r.time(), func(bucket.ID) bool { return true })
		if len(changed) > 0 || r.copies == nil || w.rand.IntN(2) == 0 {
			r.saveCopies()
		}
		for i := range w.regions {
			if sts := due[w.regions[i].name]; len(sts) > 0 {
				r.send(i, sts)
			} else if slices.Contains(r.holdings.Unknown(), w.regions[i].name) {
				r.send(i, nil)
			}
		}
	})
	w.check()
	w.after(100*ms, r.tick)
}

func (r *region) send(to int, sts []Statement) {
	w := r.w
	w.seq++
	serial := int64(w.seq)
	r.answers[serial] = true
	e := r.holdings.Exchange(sts)
	w.post(&post{from: r.index, to: to, bytes: e.Append(nil), serial: serial, member: r.member})
	w.said.statements += int64(len(sts))
	holdings, name := r.holdings, w.regions[to].name
	w.after(2*sec, func() {
		if r.answers[serial] && r.holdings == holdings {
			delete(r.answers, serial)
			holdings.Unanswered(name, sts, r.time())
		}
	})
}

func (w *globe) post(p *post) {
	w.said.messages++
	w.said.bytes += int64(len(p.bytes))
	p.times = 1
	if w.rand.Float64() < w.net.lose {
		p.times = 0
	}
	if w.rand.Float64() < w.net.repeat {
		p.times++
	}
	if p.answer && p.times > 0 {
		w.flying = append(w.flying, p)
	}
	for i := range p.times {
		d := w.net.delay
		if w.net.jitter > 0 {
			d += w.rand.Int64N(w.net.jitter)
		}
		if i > 0 && w.net.late > 0 {
			d += w.rand.Int64N(w.net.late)
		}
		w.after(d, func() {
			w.arrive(p)
			w.check()
		})
	}
}

func (w *globe) arrive(p *post) {
	if p.times--; p.times == 0 && p.answer {
		w.flying = slices.DeleteFunc(w.flying, func(q *post) bool { return q == p })
	}
	if w.cut[p.from][p.to] {
		return
	}
	r := w.regions[p.to]
	e, err := ParseExchange(p.bytes)
	if err != nil {
		w.fail("%x: %v", p.bytes, err)
	}
	r.holdings.Meet(e.Region, e.Print)
	r.recordCharges(func() {
		if p.answer {
			delete(r.answers, p.serial)
			for i := range e.Statements {
				r.holdings.Answered(e.Region, e.Print, &e.Statements[i], r.time())
			}
			return
		}
		var answers []Statement
		for i := range e.Statements {
			if answer, ok := r.holdings.Serve(e.Region, e.Print, &e.Statements[i], r.time()); ok {
				answers = append(answers, answer)
			}
		}
		if len(answers) > 0 || len(e.Statements) == 0 {
			back := r.holdings.Exchange(answers)
			w.post(&post{from: p.to, to: p.from, bytes: back.Append(nil), serial: p.serial, member: p.member, answer: true})
		}
	})
}

// recordCharges records the units that f has counted although there was no ask.
func (r *region) recordCharges(f func()) {
	before := r.used()
	f()
	if more := r.used() - before; more > 0 {
		r.w.charges = append(r.w.charges, spell{at: r.w.now, units: more, region: r.index})
	}
}

func (r *region) used() (units int64) {
	for _, id := range r.w.ids {
		used, _, _ := r.store.Used(id, r.time().Now)
		units += used
	}
	return units
}

// whole returns the limit that an ask in this region has at this time: the whole limit, not the
// part of the region.
func (r *region) whole() bucket.Limit {
	l := r.w.limit
	switch l.Algorithm {
	case bucket.FixedWindow:
		at := r.w.now + r.wall
		l.Start = at - at%int64(l.Per)
	case bucket.SlidingWindow:
		l.Start = int64(l.Per)
	}
	return l
}

func (r *region) ask(units int64) bucket.Result {
	w := r.w
	var res bucket.Result
	before := r.used()
	l := r.whole()
	r.holdings.TakeUnits(w.ids[0], &l, r.time(), units, &res)
	taken := int64(0)
	if res.Allowed {
		taken = units
		w.asks.granted += units
		s := spell{at: w.now, units: units, region: r.index}
		switch l.Algorithm {
		case bucket.SlidingWindow:
			s.window = r.time().Now - r.time().Now%int64(l.Per)
		case bucket.FixedWindow:
			var c bucket.Count
			r.store.Export(w.ids[0], r.time().Now, bucket.Mark{}, &c)
			s.window = c.Limit.Start
		}
		w.admitted = append(w.admitted, s)
		r.admitted += units
	} else {
		w.asks.denied += units
	}
	if more := r.used() - before - taken; more > 0 {
		w.charges = append(w.charges, spell{at: w.now, units: more, region: r.index})
	}
	if res.Allowed && w.limit.Algorithm == bucket.SlidingWindow {
		w.checkEstimate()
	}
	return res
}

// demand makes a region ask for units periodically. In each period the region repeats the ask
// until a denial, or until it has asked maxAsks times in the period. While the function on
// returns false, the region does not ask.
func (r *region) demand(every, units int64, maxAsks int, on func() bool) {
	w := r.w
	var again func()
	again = func() {
		if on() {
			for range maxAsks {
				if !r.ask(units).Allowed {
					break
				}
			}
		}
		w.after(every/2+w.rand.Int64N(every), again)
	}
	w.after(w.rand.Int64N(every), again)
}

// check fails if the units of all regions sum to more than the limit, or if a region has more units of
// another region than the other region has granted. As long as a region does not know its grants, check does
// not compare pairs of regions, and shortly after a crash that loses units, it does not compare the sum.
func (w *globe) check() {
	for i := range w.ids {
		capacity := w.limit.Capacity()
		var sum int64
		unknown := false
		for _, r := range w.regions {
			x, t := r.holding(i), r.time()
			if x == nil {
				if r.holdings.uncertainFor() == 0 {
					sum += r.regions.start(capacity, r.index)
				} else {
					unknown = true
				}
				continue
			}
			unknown = unknown || !x.allKnown()
			has := min(capacity, max(0, x.unitsAt(r, t)))
			if t.Monotonic < x.until {
				has = max(has, x.held)
			}
			sum += has
			if x.part.Capacity() > x.held || x.held > capacity {
				w.fail("%s holds %d and judges by %d", r.name, x.held, x.part.Capacity())
			}
		}
		if sum > capacity && !(unknown && w.now < w.lostTill) {
			w.fail("regions hold %d of %d: %s", sum, capacity, w.books(i))
		}
		for _, g := range w.regions {
			for _, r := range w.regions {
				if g != r && !unknown {
					w.checkPair(i, g, r)
				}
			}
		}
	}
}

// unitsAt returns the units that may be spent here at t.
func (x *holding) unitsAt(r *region, t Time) int64 {
	if x.unsure {
		return 0
	}
	units := r.regions.start(x.whole.Capacity(), r.index)
	for i := range x.accounts {
		a := &x.accounts[i]
		if t.Monotonic < a.grantedUntil {
			units -= a.granted
		}
		if t.Monotonic < a.receivedUntil {
			units += a.received
		}
	}
	return units
}

func (w *globe) checkPair(id int, g, r *region) {
	var granted, received int64
	if x := g.holding(id); x != nil {
		if a := &x.accounts[r.index]; g.time().Monotonic < a.grantedUntil {
			granted = a.granted
		}
	}
	x := r.holding(id)
	if x == nil {
		return
	}
	a, monotonic := &x.accounts[g.index], r.time().Monotonic
	if monotonic < a.receivedUntil {
		received = a.received
	}
	for _, p := range w.flying {
		if p.from != g.index || p.to != r.index || !a.waits || monotonic >= a.sent+term {
			continue
		}
		e, _ := ParseExchange(p.bytes)
		for i := range e.Statements {
			if st := &e.Statements[i]; st.ID == x.id && st.Answers == a.number && st.LastNumber == st.Answers {
				received = max(received, st.Granted)
			}
		}
	}
	if received > granted {
		w.fail("%s has %d of %s, which has granted it %d: %s", r.name, received, g.name, granted, w.books(id))
	}
}

func (w *globe) books(id int) (s string) {
	for _, r := range w.regions {
		if x := r.holding(id); x != nil {
			s += fmt.Sprintf("\n%s held %d judged by %d used %d demand %.0f unsure %v passing %d", r.name, x.held, x.part.Capacity(), r.used(), x.demand, x.unsure, x.passing)
			for j := range x.accounts {
				if j != r.index {
					a := &x.accounts[j]
					s += fmt.Sprintf(" | r%d granted %d received %d promised %d known %v number %d heard %d", j, a.granted, a.received, a.promised, a.known, a.number%1e12, a.heard%1e12)
				}
			}
		}
	}
	return s
}

// checkEstimate fails if the used units of all regions, which a SlidingWindow estimates, sum to more than
// the limit. Only units that were charged twice to be safe, and lost units, may exceed the limit. If a clock
// of counts was set, checkEstimate does nothing.
func (w *globe) checkEstimate() {
	if w.stepped || w.setBack {
		return
	}
	var sum, charged int64
	for _, r := range w.regions {
		sum += r.used()
	}
	for i := len(w.charges) - 1; i >= 0 && w.charges[i].at > w.now-2*int64(w.limit.Per); i-- {
		charged += w.charges[i].units
	}
	if sum > w.limit.Capacity()+charged+w.lost {
		w.fail("estimates sum to %d of %d, and %d charged: %s", sum, w.limit.Capacity(), charged, w.books(0))
	}
}

// checkAdmissions compares all admitted units with the definition of the algorithm, in true time.
func (w *globe) checkAdmissions() {
	a := w.admitted
	slices.SortStableFunc(a, func(x, y spell) int { return cmp.Compare(x.at, y.at) })
	w.checkAgainst(a, w.lost)
	if w.lost > 0 {
		settled, _ := slices.BinarySearchFunc(a, w.lostTill+2*int64(w.limit.Per), func(s spell, at int64) int { return cmp.Compare(s.at, at) })
		w.checkAgainst(a[settled:], 0)
	}
}

// checkAgainst fails if more units were admitted than the limit allows, in addition to the units
// that crashes have lost. If a clock of counts was set forward, it checks only a FixedWindow.
func (w *globe) checkAgainst(a []spell, lost int64) {
	l := &w.limit
	capacity, per := l.Capacity()+lost, int64(l.Per)
	switch l.Algorithm {
	case bucket.SlidingLog:
		if !w.stepped {
			if most := mostIn(a, per); most > capacity {
				w.fail("%d of %d in one window", most, capacity)
			}
		}
	case bucket.FixedWindow:
		w.checkWindows(a, capacity)
	case bucket.TokenBucket, bucket.LeakyBucket:
		if over := overBurst(a, l) - lost; over > l.Capacity() && !w.stepped {
			w.fail("%d beyond the rate, of a burst of %d", over, l.Capacity())
		}
	default:
		// If the clocks of regions differ, a region whose clock is ahead admits units that have slid
		// out by its clock, while another region still spends units of the earlier window. The excess
		// is the units that slide out in the difference of the clocks, and the first unit of each region.
		more := int64(0)
		if w.apart > 0 {
			more = int64(math.Ceil(float64(capacity)*float64(w.apart)/float64(per))) + int64(len(w.regions))
		}
		if most := mostIn(a, per); most > 2*capacity+more && !w.stepped {
			w.fail("%d of %d in one window, by clocks that are %v apart", most, capacity, time.Duration(w.apart))
		}
		if w.apart == 0 && !w.stepped {
			w.checkWindows(a, capacity)
		}
	}
}

// recordClocks records the largest difference of the clocks.
func (w *globe) recordClocks() {
	least, most := w.regions[0].ahead, w.regions[0].ahead
	for _, r := range w.regions {
		least, most = min(least, r.ahead), max(most, r.ahead)
	}
	w.apart = max(w.apart, most-least)
}

// checkWindows fails if more units than capacity were admitted in a calendar window.
func (w *globe) checkWindows(a []spell, capacity int64) {
	windows := make(map[int64]int64)
	for i := range a {
		if windows[a[i].window] += a[i].units; windows[a[i].window] > capacity {
			w.fail("%d of %d in the window %v", windows[a[i].window], capacity, time.Duration(a[i].window-epoch))
		}
	}
}

// mostIn returns the maximum number of units in a window of length per.
func mostIn(a []spell, per int64) (most int64) {
	var sum int64
	from := 0
	for i := range a {
		for sum += a[i].units; a[i].at-a[from].at >= per; from++ {
			sum -= a[from].units
		}
		most = max(most, sum)
	}
	return most
}

// overBurst returns the maximum over all spans of time of the units admitted beyond the rate.
func overBurst(a []spell, l *bucket.Limit) int64 {
	var most, level, last float64
	for i := range a {
		at := float64(a[i].at - epoch)
		level = max(0, level-(at-last)*float64(l.Rate)/float64(l.Per)) + float64(a[i].units)
		last = at
		most = max(most, level)
	}
	return int64(math.Ceil(most - 1e-6))
}
