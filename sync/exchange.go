package countsync

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir/bucket"
)

// Statement is what one region says to another of an id.
type Statement struct {
	ID     bucket.ID
	Limit  bucket.Limit
	Number int64 // rises with each statement of a region to another about the id; 0 says nothing of Received

	// Of what the receiver has granted.
	Received int64 // what the sender has, at most, until it takes an answer to this Number
	Debt     int64 // what it has spent beyond all that it has
	Wants    int64 // how much more it would have
	Must     int64 // the largest ask that it had to deny
	Demand   int64 // units that it is asked for in 1,000 seconds, of late
	Usual    int64 // and over windows
	Holding  int64 // what it has in all
	Forgot   bool  // it does not know what the receiver has of it

	// Of what the sender has granted.
	Answers int64         // the Number that this answers, 0 for none
	Granted int64         // what the receiver may have from then on
	Used    int64         // how much of what that is more is spent already
	Heard   int64         // the highest Number that came; told too where the sender has Forgot
	More    bool          // more of it comes as soon as it is unspent here
	Retry   time.Duration // when there may be more, if nothing was granted

	Spent  int64 // in all since Series began
	Series int64 // rises when that begins again
}

// Exchange is statements of a region's node to another region.
type Exchange struct {
	Region     string
	From       Member
	Print      uint64 // of the Regions
	Statements []Statement
}

const exchangeVersion = 1

// maxStatements is how many statements fit into one message for sure, with what
// is in it beside them.
const maxStatements = 320

// The flags of a statement.
const (
	statementMore = 1 << iota
	statementForgot
)

var errExchange = errors.New("countsync: malformed exchange")

// Append encodes an exchange.
func (e *Exchange) Append(b []byte) []byte {
	b = append(b, exchangeVersion, byte(len(e.Region)))
	b = append(b, e.Region...)
	b = binary.LittleEndian.AppendUint64(b, e.From)
	b = binary.LittleEndian.AppendUint64(b, e.Print)
	var known limits
	for i := range e.Statements {
		st := &e.Statements[i]
		at, isNew, ok := known.index(&st.Limit)
		if !ok {
			continue // nothing that a region would take
		}
		flags := byte(0)
		if st.More {
			flags |= statementMore
		}
		if st.Forgot {
			flags |= statementForgot
		}
		b = append(appendID(b, st.ID), flags)
		b = known.append(b, &st.Limit, at, isNew)
		for _, n := range st.numbers() {
			b = binary.AppendUvarint(b, uint64(max(0, *n)))
		}
		b = binary.AppendUvarint(b, uint64(max(0, st.Retry)))
	}
	return b
}

func (st *Statement) numbers() [14]*int64 {
	return [14]*int64{
		&st.Number, &st.Received, &st.Debt, &st.Wants, &st.Must, &st.Demand, &st.Usual, &st.Holding,
		&st.Answers, &st.Granted, &st.Used, &st.Heard, &st.Spent, &st.Series,
	}
}

// ParseExchange is the opposite of Append.
func ParseExchange(b []byte) (e Exchange, err error) {
	r := reader{b: b}
	if version := r.byte(); r.err == nil && version != exchangeVersion {
		return e, errExchange
	}
	n := int(r.byte())
	if n > len(r.b) {
		return e, errExchange
	}
	e.Region = string(r.b[:n])
	r.b = r.b[n:]
	e.From, e.Print = r.uint64(), r.uint64()
	var known limits
	for len(r.b) > 0 {
		st := Statement{ID: r.id()}
		flags := r.byte()
		st.More, st.Forgot = flags&statementMore != 0, flags&statementForgot != 0
		st.Limit = known.read(&r)
		for _, n := range st.numbers() {
			*n = r.number()
		}
		st.Retry = time.Duration(min(r.uvarint(), uint64(longestRefusal)))
		if r.err == nil && (flags&^(statementMore|statementForgot) != 0 || st.Limit.Validate() != nil || len(e.Statements) == maxStatements) {
			r.fail("a statement")
		}
		if r.err != nil {
			return Exchange{}, r.err
		}
		e.Statements = append(e.Statements, st)
	}
	if r.err != nil {
		return Exchange{}, r.err
	}
	return e, nil
}

// Due is what this node has to say to the other regions, by region: nothing to
// most, most of the time. answers says of an id whether it is this node that
// decides. changed is the ids whose holdings others of this region have to know.
func (h *Holdings) Due(t Time, answers func(bucket.ID) bool) (due map[string][]Statement, changed []bucket.ID) {
	due = make(map[string][]Statement)
	for i := range h.shards {
		sh := &h.shards[i]
		sh.mu.Lock()
		queue := sh.queue
		sh.queue = nil
		for _, x := range queue {
			x.queued = false
		}
		// Beside those that were asked for, all others once in a while.
		for range (len(sh.all) + lookParts - 1) / lookParts {
			if sh.next++; sh.next >= len(sh.all) {
				sh.next = 0
			}
			queue = append(queue, sh.all[sh.next])
		}
		for _, x := range queue {
			if sh.of[x.id] != x || !answers(x.id) {
				if sh.of[x.id] == x && t.Steady-x.seen > 2*keptFor {
					h.drop(sh, x) // a copy that nobody has renewed
				}
				continue
			}
			if h.look(sh, x, t, due) {
				changed = append(changed, x.id)
			}
		}
		sh.mu.Unlock()
	}
	return due, changed
}

// lookParts is in how many parts holdings are looked at that nobody asked for.
const lookParts = 10

// look takes a holding a step further, and says whether copies of it have to
// change.
func (h *Holdings) look(sh *holdings, x *holding, t Time, due map[string][]Statement) (changed bool) {
	if t.Steady >= x.until || x.unsure {
		h.renew(x, t)
		changed = true
	}
	x.measure(t.Steady)
	peek := h.store.Peek(x.id, &x.limit, t.Now, 0)
	wants := int64(0)
	if !x.unsure {
		wants = x.wants(&peek)
	}
	spare := h.spare(x, &peek, t)
	busy := false
	for i := range x.accounts {
		if i == h.regions.self {
			continue
		}
		a := &x.accounts[i]
		since := t.Steady - a.sent
		if a.waits && since >= unanswered {
			a.waits = false
		}
		ask := wants > 0 && t.Steady >= a.again
		renews := a.received > 0 && since >= renewAfter
		returns := spare > 0 && a.received > 0
		unknown := !a.known
		tells := x.spent != a.reported && since >= reportEvery(&x.whole)
		busy = busy || wants > 0 || a.granted > 0 || a.received > 0 || unknown || x.spent != a.reported
		if a.waits || since < int64(ExchangeEvery) && a.sent != 0 || !(ask || renews || returns || unknown && t.Steady >= a.again || tells) {
			continue
		}
		if returns {
			back := min(spare, a.received)
			a.owes += h.carry(x, back, t)
			a.received -= back
			spare -= back
			x.passing = max(0, x.passing-back)
		}
		h.renew(x, t)
		st := h.statement(x, a, t)
		if a.wants = wants > 0; a.wants {
			st.Wants, st.Must = wants, x.largest
		}
		region := h.regions.names[i]
		due[region] = append(due[region], st)
		changed = true
	}
	x.largest = 0
	switch {
	case wants > 0 || x.passing > 0:
		sh.push(x)
	case !busy && peek.ResetAfter == 0 && t.Steady-x.seen > keptFor:
		h.drop(sh, x)
		changed = true
	}
	return changed
}

// statement is the next one about a holding to a region.
func (h *Holdings) statement(x *holding, a *account, t Time) Statement {
	a.number = max(a.number+1, t.Now)
	a.sent, a.waits, a.reported = t.Steady, true, x.spent
	st := Statement{
		ID: x.id, Limit: x.whole, Number: a.number, Received: a.received, Debt: h.debt(x, t.Now) + a.owes,
		Demand: int64(min(x.demand*1000, 1<<60)), Usual: int64(min(x.usual*1000, 1<<60)), Holding: x.held, Spent: x.spent, Series: x.series,
	}
	if !a.known {
		st.Forgot, st.Heard, a.asked = true, a.heard, a.number
	}
	return st
}

// reportEvery is how often a region is told what was spent, if there is nothing
// else to tell: ten times in a Per, about.
func reportEvery(l *bucket.Limit) int64 { return min(max(int64(l.Per)/10, 1e9), 10e9) }

// settling is the time in which demand of late is forgotten to a third: long enough
// to tell it from chance, and short beside Per, in which it has to be followed.
func settling(l *bucket.Limit) float64 { return min(max(float64(l.Per)/8, 100e6), 1e9) }

// windows is that of the usual demand: as regions whose windows all are used up ask
// in bursts, when these begin, only demand over some windows tells them apart.
func windows(l *bucket.Limit) float64 { return min(max(4*float64(l.Per), 1e9), 20e9) }

// measure brings the demand up to date: of each unit asked for it counts a part
// that falls exponentially.
func (x *holding) measure(steady int64) {
	since, asked := float64(max(0, steady-x.at)), float64(x.asked)*1e9
	tau := settling(&x.whole)
	x.demand = x.demand*math.Exp(-since/tau) + asked/tau
	tau = windows(&x.whole)
	x.usual = x.usual*math.Exp(-since/tau) + asked/tau
	x.asked, x.at = 0, steady
}

// need is how many units would do for the demand: those of a Per, or of the time
// in which a bucket fills, and a quarter more.
func (x *holding) need() int64 {
	return int64(min(1.25*x.demand*recoveryTime(&x.whole)/1e9, 1<<60))
}

func recoveryTime(l *bucket.Limit) float64 {
	return max(float64(l.Per), float64(l.Per)*float64(l.Capacity())/float64(l.Rate))
}

// wants is how many units more this region would have: ahead of need, once half of
// what it has is used.
func (x *holding) wants(peek *bucket.Result) int64 {
	most := x.whole.Capacity()
	want := min(max(x.need(), x.largest), most) - x.held
	if x.largest == 0 && 2*peek.Remaining > peek.Limit {
		return 0
	}
	return max(0, want)
}

// spare is how many units can be given back to whom they were received from: what
// a third region has asked for; and where nobody has asked for a while, all that
// are unspent. Until then a region that needs them has to ask.
func (h *Holdings) spare(x *holding, peek *bucket.Result, t Time) int64 {
	switch {
	case t.Steady-x.seen >= min(max(int64(x.whole.Per), term), 6*term):
		return peek.Remaining
	case x.passing > 0 && !isBucket(&x.whole):
		used, _, _ := h.store.Used(x.id, t.Now)
		return min(x.passing, max(0, x.held-used))
	}
	return x.passing
}

// isBucket is whether what is spent of a limit goes along when that is granted.
// Of a window it stays where it was spent, and is forgotten there when its time
// comes. A level does not fall at any time but by a rate, and this belongs to the
// capacity: who kept the one until the level has fallen would keep the other too.
func isBucket(l *bucket.Limit) bool {
	return l.Algorithm == bucket.TokenBucket || l.Algorithm == bucket.LeakyBucket
}

// Serve takes in what a region's node states, and answers. ok is false if there
// is no answer: the regions do not agree how limits are shared out, or there is no
// room for the id.
func (h *Holdings) Serve(from string, sender Member, print uint64, st *Statement, t Time) (answer Statement, ok bool) {
	region := h.regions.index(from)
	if region < 0 || !h.agree(region, print) {
		return answer, false
	}
	sh := h.shard(st.ID)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	x := h.holding(sh, st.ID, &st.Limit, t)
	if x == nil {
		return answer, false
	}
	x.catchUp(&st.Limit)
	a := &x.accounts[region]
	isNew := h.heed(x, a, sender, st, t)
	answer = Statement{ID: x.id, Answers: st.Number, Heard: a.heard, Spent: x.spent, Series: x.series}
	had := a.received
	if isNew && st.Wants > 0 {
		h.grant(x, a, st, &answer, t)
	}
	if a.received < had || st.Forgot {
		// An answer that is on its way to the number before is not for what is told now.
		a.number, a.waits = max(a.number+1, t.Now), false
	}
	if !a.waits {
		answer.Number, answer.Received, answer.Debt = a.number, a.received, h.debt(x, t.Now)+a.owes
	}
	if st.Number == a.heard && sender == a.grantedTo {
		answer.Granted, answer.Used = min(a.granted, max(0, h.own(x)+a.granted)), a.moved
	}
	answer.Limit, answer.Holding = x.whole, x.held
	a.reported = x.spent
	sh.push(x)
	return answer, true
}

func (h *Holdings) agree(region int, print uint64) bool {
	if print != h.regions.print {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.agreed[region] {
		h.agreeOn(region)
	}
	return true
}

// heed takes in what a region has received of this one. What it does not have any
// more is unspent but for its debt, if the node that says so is the one that had
// it; else nobody knows.
func (h *Holdings) heed(x *holding, a *account, sender Member, st *Statement, t Time) (isNew bool) {
	if st.Series > a.series {
		a.series, a.theirs = st.Series, 0
	}
	if st.Series == a.series && st.Spent > a.theirs {
		h.store.SpendElsewhere(elsewhere(x.id), &x.whole, t.Now, st.Spent-a.theirs)
		a.theirs = st.Spent
	}
	if st.Heard > a.number {
		a.number, a.waits = st.Heard, false // of a node before this one
	}
	h.renew(x, t)
	if st.Number <= a.heard {
		return false
	}
	a.heard = st.Number
	var lost int64
	switch less := a.granted - st.Received; {
	case less > 0:
		if lost = less; a.grantedTo == sender {
			lost = min(less, st.Debt+a.moved)
		}
		a.granted -= less
	case !a.known:
		a.granted = min(st.Received, h.regions.start(x.whole.Capacity(), h.regions.self))
	}
	a.moved = 0
	a.grantedTo, a.grantedUntil = sender, t.Steady+keptFor
	h.renew(x, t)
	if lost > 0 {
		h.store.SpendElsewhere(x.id, &x.limit, t.Now, lost)
	}
	return true
}

// catchUp takes over numbers that are later: of a higher Version, or of a later
// window. A region that has other numbers at the same Version judges by its own.
func (x *holding) catchUp(l *bucket.Limit) {
	w := &x.whole
	switch {
	case l.Version > w.Version:
		*w = *l
	case l.Version == w.Version && l.Algorithm == w.Algorithm && l.Start > w.Start && w.Start != 0:
		w.Start, w.Per = l.Start, l.Per
	}
}

// grant has a region have more: first of what it has granted itself, then of what
// this one began with. Of what the two of them hold each is to have as much as the
// rule says; a region without demand keeps a small part of what it began with, so
// that it can start, unless a single ask needs all. What a third one has granted
// goes back to that, where it can be asked for.
func (h *Holdings) grant(x *holding, a *account, st *Statement, answer *Statement, t Time) {
	x.measure(t.Steady)
	a.promised = 0
	h.renew(x, t)
	peek := h.store.Peek(x.id, &x.limit, t.Now, 0)
	theirs := min(st.Holding, x.whole.Capacity())
	both := x.held + theirs
	d := demands{x.demand, float64(st.Demand) / 1000}
	if x.denied != 0 && float64(t.Steady-x.denied) < settling(&x.whole) {
		d = demands{x.usual, float64(st.Usual) / 1000}
	}
	target := h.rule(d, both, theirs, peek.Remaining)
	floor := h.regions.start(x.whole.Capacity(), h.regions.self) / floorPart
	if st.Must > theirs {
		floor = 0
	}
	due := min(st.Wants, target-theirs, x.held-floor)
	if due <= 0 || due < both/16 && x.need() > x.held/2 || !x.known() {
		answer.Retry = h.retry(&peek)
		return
	}
	able := min(due, max(0, h.own(x)-floor)+a.received)
	if x.passing = due - able; x.passing > 0 {
		x.passTill = t.Steady + promiseFor
	}
	units := able
	if !isBucket(&x.whole) {
		units = min(able, peek.Remaining)
	}
	back := min(units, a.received)
	spent := h.carry(x, units, t)
	a.owes += min(spent, back)
	a.moved += max(0, spent-back)
	a.received -= back
	a.granted += units - back
	a.grantedUntil = t.Steady + keptFor
	h.renew(x, t)
	if a.promised = able - units; a.promised > 0 {
		later := h.store.Peek(x.id, &x.limit, t.Now, max(1, min(a.promised, able/8)))
		answer.More, answer.Retry = true, min(later.RetryAfter, time.Duration(longestRefusal))
		a.promisedTill = t.Steady + int64(answer.Retry) + promiseFor
		h.renew(x, t)
	} else if units == 0 {
		answer.Retry = h.retry(&peek)
	}
}

// carry takes what is spent of units that go to another region off the count here:
// nothing, as long as they are of what is unspent.
func (h *Holdings) carry(x *holding, units int64, t Time) (spent int64) {
	if !isBucket(&x.whole) {
		return 0
	}
	used, _, _ := h.store.Used(x.id, t.Now)
	if spent = min(used, max(0, used+units-x.held)); spent > 0 {
		h.store.SpendElsewhere(x.id, &x.limit, t.Now, -spent)
	}
	return spent
}

// floorPart is which part of what it begins with a region keeps without demand.
const floorPart = 16

// known is whether all that others have of this region is.
func (x *holding) known() bool {
	return !slices.ContainsFunc(x.accounts, func(a account) bool { return !a.known })
}

// demands are units asked for in a second.
type demands struct{ own, theirs float64 }

// rule says how many of the units that two regions hold the one that asks is to
// have.
type rule func(d demands, both, theirs, unspent int64) int64

// byDemand gives each as much of both as it has of their demand; of what cannot be
// parted, who has some does not get the rest, lest it goes to and fro.
func byDemand(d demands, both, theirs, _ int64) int64 {
	part := float64(both) * d.theirs / (d.own + d.theirs)
	if d.own <= 0 || part > float64(both)-0.5 {
		return both
	}
	if theirs == 0 {
		part = math.Ceil(part)
	}
	return int64(part)
}

// promiseFor is how long units are kept for a region that does not come for them.
const promiseFor = int64(time.Second)

// retry is when something may be unspent here.
func (h *Holdings) retry(peek *bucket.Result) time.Duration {
	if peek.Remaining > 0 {
		return 0
	}
	return min(peek.ResetAfter, time.Duration(longestRefusal))
}

// Answered takes in a region's answer.
func (h *Holdings) Answered(from string, sender Member, print uint64, st *Statement, t Time) (changed bool) {
	region := h.regions.index(from)
	if region < 0 || !h.agree(region, print) {
		return false
	}
	sh := h.shard(st.ID)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	x := sh.of[st.ID]
	if x == nil {
		return false
	}
	x.catchUp(&st.Limit)
	a := &x.accounts[region]
	h.heed(x, a, sender, st, t)
	if a.asked != 0 && st.Answers == a.asked && st.Number == a.heard {
		a.known = true
	}
	h.renew(x, t)
	sh.push(x)
	if st.Answers != a.number || !a.waits || st.Heard != st.Answers {
		return true
	}
	gained := st.Granted - a.received
	a.received, a.receivedUntil = st.Granted, a.sent+term
	a.waits, a.owes = false, 0
	a.trip = t.Steady - a.sent
	switch {
	case st.More:
		a.refusals, a.again = 0, t.Steady+int64(st.Retry)
	case gained > 0:
		a.refusals, a.again = 0, t.Steady
	case a.wants:
		a.refuse(x, t)
		if st.Retry > 0 {
			a.again = min(a.again, t.Steady+int64(st.Retry))
		}
	}
	h.renew(x, t)
	if used := min(gained, st.Used); used > 0 {
		h.store.SpendElsewhere(x.id, &x.limit, t.Now, used)
	}
	return true
}

// refuse puts off when a region is asked for more, the longer the more often it has
// refused, but not so long that demand which moves is not followed within a Per.
func (a *account) refuse(x *holding, t Time) {
	a.refusals = min(a.refusals+1, 10)
	longest := min(max(int64(x.whole.Per)/4, 2*int64(ExchangeEvery)), longestRefusal)
	a.again = t.Steady + min(int64(ExchangeEvery)<<a.refusals, longest)
}

// elsewhere is the id of what the other regions have spent of a limit.
func elsewhere(id bucket.ID) bucket.ID { return bucket.ID{Hi: id.Hi, Lo: ^id.Lo} }

// Elsewhere is what the other regions have told that they have spent, and that has
// not recovered.
func (h *Holdings) Elsewhere(id bucket.ID, now int64) int64 {
	used, _, _ := h.store.Used(elsewhere(id), now)
	return used
}

// Unanswered says that statements to a region did not reach it, or were not
// answered.
func (h *Holdings) Unanswered(region string, sts []Statement, t Time) {
	at := h.regions.index(region)
	if at < 0 {
		return
	}
	for i := range sts {
		sh := h.shard(sts[i].ID)
		sh.mu.Lock()
		if x := sh.of[sts[i].ID]; x != nil {
			if a := &x.accounts[at]; a.number == sts[i].Number && a.waits {
				a.waits = false
				a.refuse(x, t)
				a.reported = -1
			}
		}
		sh.mu.Unlock()
	}
}

// Regions are the names of the other regions.
func (h *Holdings) Regions() []string {
	return slices.Delete(slices.Clone(h.regions.names), h.regions.self, h.regions.self+1)
}
