package countsync

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/weir-go/weir/bucket"
)

// Statement is what one region says to another of an id.
type Statement struct {
	ID     bucket.ID
	Limit  bucket.Limit
	Number int64  // rises with each statement of a region to another about the id; 0 says nothing of Received
	From   Member // who decides about the id in the sender's region; nobody, if Number is 0

	// Of what the receiver has granted.
	Received int64 // what the sender has, at most, until it takes an answer to this Number
	Wants    int64 // how much more it would have
	Must     int64 // the largest ask that it had to deny
	Demand   int64 // units that it is asked for in 1,000 seconds
	Holding  int64 // what it has in all

	// Of what the sender has granted.
	Answers int64         // the Number that this answers, 0 for none
	Granted int64         // what the receiver may have received from then on
	Heard   int64         // the highest Number that came
	More    bool          // more of it comes as soon as it is unspent here
	Retry   time.Duration // when there may be more, if nothing was granted

	Spent  int64 // in all since Series began
	Series int64 // rises when that begins again
}

// Exchange is statements of a region to another.
type Exchange struct {
	Region     string
	Print      uint64 // of the Regions
	Statements []Statement
}

const exchangeVersion = 1

// MaxStatements is how many statements fit into one message for sure, with what
// is in it beside them.
const MaxStatements = 320

// statementMore is the only flag of a statement.
const statementMore = 1

var errExchange = errors.New("countsync: malformed exchange")

// Append encodes an exchange.
func (e *Exchange) Append(b []byte) []byte {
	b = append(b, exchangeVersion, byte(len(e.Region)))
	b = append(b, e.Region...)
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
		b = append(appendID(b, st.ID), flags)
		b = known.append(b, &st.Limit, at, isNew)
		for _, n := range st.numbers() {
			b = binary.AppendUvarint(b, uint64(max(0, *n)))
		}
		b = binary.AppendUvarint(b, uint64(max(0, st.Retry)))
		if st.Number > 0 {
			b = binary.LittleEndian.AppendUint64(b, st.From)
		}
	}
	return b
}

func (st *Statement) numbers() [11]*int64 {
	return [11]*int64{
		&st.Number, &st.Received, &st.Wants, &st.Must, &st.Demand, &st.Holding,
		&st.Answers, &st.Granted, &st.Heard, &st.Spent, &st.Series,
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
	e.Print = r.uint64()
	var known limits
	for len(r.b) > 0 {
		st := Statement{ID: r.id()}
		flags := r.byte()
		st.More = flags&statementMore != 0
		st.Limit = known.read(&r)
		for _, n := range st.numbers() {
			*n = r.number()
		}
		st.Retry = time.Duration(min(r.uvarint(), uint64(366*24*time.Hour)))
		if st.Number > 0 {
			st.From = r.uint64()
		}
		if r.err == nil && (flags&^statementMore != 0 || st.Limit.Validate() != nil || len(e.Statements) == MaxStatements) {
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

// Exchange is statements of this region.
func (h *Holdings) Exchange(sts []Statement) Exchange {
	return Exchange{Region: h.regions.names[h.regions.self], Print: h.regions.print, Statements: sts}
}

// Due is what this node has to say to the other regions, by region: nothing to
// most, most of the time. answers says of an id whether it is this node that
// decides. changed is the ids whose holdings others of this region have to know.
func (h *Holdings) Due(t Time, answers func(bucket.ID) bool) (due map[string][]Statement, changed []bucket.ID) {
	h.tick(t)
	d := dues{to: make(map[string][]Statement), reports: maxReports}
	var looked []*holding
	for i := range h.shards {
		sh := &h.shards[i]
		looked = sh.take(looked[:0])
		for _, x := range looked {
			sh.mu.Lock()
			x.queued.Store(false)
			kept := sh.find(x.id) == x
			switch {
			case !kept:
			case !answers(x.id):
				if t.Steady-x.seen > 2*keptFor {
					h.drop(sh, x) // a copy that nobody has renewed
				}
			case h.look(sh, x, t, &d):
				changed = append(changed, x.id)
			}
			sh.mu.Unlock()
		}
	}
	return d.to, changed
}

// dues are the statements of one round.
type dues struct {
	to      map[string][]Statement
	reports int // that may still be made of what was spent, and of nothing else
}

// maxReports bounds what one round reports of what was spent; the others come
// later.
const maxReports = 1000

// lookParts is in how many parts holdings are looked at that nobody asked for.
const lookParts = 10

// look takes a holding a step further, and says whether copies of it have to
// change.
func (h *Holdings) look(sh *holdings, x *holding, t Time, d *dues) (changed bool) {
	if t.Steady >= x.judging.Load().until {
		h.renew(x, t)
		changed = true
	}
	x.measure(t.Steady)
	spent, largest := x.spent(), x.largest.Swap(0)
	peek := h.store.Peek(x.id, &x.judging.Load().limit, t.Now, 0)
	wants := x.wants(&peek, largest)
	spare := x.spare(&peek, t.Steady)
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
		unknown := x.unsure && !a.known
		tells := spent != a.reported && since >= reportEvery(&x.whole)
		busy = busy || wants > 0 || a.granted > 0 || a.received > 0 || unknown || spent != a.reported
		if tells = tells && d.reports > 0; tells && !(ask || renews || returns || unknown) {
			d.reports--
		}
		if a.waits || since < int64(ExchangeEvery) && a.sent != 0 || !(ask || renews || returns || unknown || tells) {
			continue
		}
		if returns {
			spare -= h.release(x, min(spare, a.received), t, func(units int64) { a.received -= units })
		}
		st := h.statement(x, a, t)
		if ask {
			st.Wants, st.Must = wants, largest
		}
		region := h.regions.names[i]
		d.to[region] = append(d.to[region], st)
		changed = changed || a.received > 0 || a.granted > 0 || returns
	}
	switch {
	case wants > 0:
		sh.push(x)
	case !busy && peek.ResetAfter == 0 && t.Steady-x.seen > keptFor:
		h.drop(sh, x)
		changed = true
	}
	return changed
}

// drop forgets a holding. Who is just spending by it looks it up anew.
func (h *Holdings) drop(sh *holdings, x *holding) {
	sh.drop(x)
	j := *x.judging.Load()
	x.judging.Store(&j)
	h.kept.Add(-1)
}

// statement is the next one about a holding to a region.
func (h *Holdings) statement(x *holding, a *account, t Time) Statement {
	a.number = max(a.number+1, t.Now)
	a.sent, a.waits, a.reported = t.Steady, true, x.spent()
	return Statement{
		ID: x.id, Limit: x.whole, Number: a.number, From: h.self, Received: a.received,
		Demand: int64(min(x.demand*1000, 1<<60)), Holding: x.held, Spent: a.reported, Series: x.series,
	}
}

// reportEvery is how often a region is told what was spent, if there is nothing
// else to tell: ten times in a Per, about.
func reportEvery(l *bucket.Limit) int64 { return min(max(int64(l.Per)/10, 1e9), 10e9) }

// settling is the time in which demand is forgotten to a third: long enough to
// tell it from chance, and short beside Per, in which it has to be followed.
func settling(l *bucket.Limit) float64 { return min(max(float64(l.Per)/8, 100e6), 1e9) }

// measure brings the demand up to date: a mean of which what is past fades
// exponentially.
func (x *holding) measure(steady int64) {
	since := float64(max(1, steady-x.at))
	fades := -math.Expm1(-since / settling(&x.whole))
	asked := x.asked.Load()
	x.demand += (float64(asked-x.counted)*1e9/since - x.demand) * fades
	if asked != x.counted {
		x.counted, x.seen = asked, steady
	}
	x.at = max(x.at, steady)
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
func (x *holding) wants(peek *bucket.Result, largest int64) int64 {
	most := x.whole.Capacity()
	want := min(max(x.need(), largest), most) - x.held
	if largest == 0 && 2*peek.Remaining > peek.Limit {
		return 0
	}
	return max(0, want)
}

// spare is how many units can be given back to whom they were received from: where
// nobody has asked for a while, all that are unspent. Until then a region that
// needs them has to ask.
func (x *holding) spare(peek *bucket.Result, steady int64) int64 {
	if steady-x.seen < min(max(int64(x.whole.Per), term), 6*term) {
		return 0
	}
	return peek.Remaining
}

// Serve takes in what a region's node states, and answers. ok is false if there
// is no answer: the regions do not agree how limits are shared out, or there is no
// room for the id.
func (h *Holdings) Serve(from string, print uint64, st *Statement, t Time) (answer Statement, ok bool) {
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
	isNew := h.heed(x, a, st, t)
	a.reported = x.spent()
	answer = Statement{
		ID: x.id, Answers: st.Number, Heard: a.heard, Holding: x.held, Spent: a.reported, Series: x.series,
	}
	if isNew && st.Wants > 0 {
		h.grant(x, a, st, &answer, t)
	}
	if st.Number == a.heard {
		answer.Granted = a.granted
	}
	answer.Limit = x.whole
	sh.push(x)
	return answer, true
}

// Strangers are the regions that are not known yet to share limits out alike.
func (h *Holdings) Strangers() (names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, agreed := range h.agreed {
		if !agreed {
			names = append(names, h.regions.names[i])
		}
	}
	return names
}

// Meet takes in that a region has such a print, be it that it states nothing.
func (h *Holdings) Meet(region string, print uint64) (agree bool) {
	i := h.regions.index(region)
	return i >= 0 && h.agree(i, print)
}

func (h *Holdings) agree(region int, print uint64) bool {
	if print != h.regions.print {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.agreed[region] = true
	return true
}

// heed takes in what a region has received of this one. What it does not have any
// more is unspent, if the node that says so is the one that had it; else nobody
// knows.
func (h *Holdings) heed(x *holding, a *account, st *Statement, t Time) (isNew bool) {
	if st.Series > a.series {
		a.series, a.theirs = st.Series, 0
	}
	if st.Series == a.series && st.Spent > a.theirs {
		h.store.SpendElsewhere(Elsewhere(x.id), &x.whole, t.Now, st.Spent-a.theirs)
		a.theirs = st.Spent
	}
	if st.Number <= a.heard {
		h.renew(x, t)
		return false
	}
	first := !a.known
	a.heard, a.known = st.Number, true
	var lost int64
	switch {
	case st.Received < a.granted:
		if a.grantedTo != st.From {
			lost = a.granted - st.Received
		}
		a.granted = st.Received
	case st.Received > a.granted && first && x.unsure:
		a.granted = st.Received
	case st.Received > a.granted:
		h.release(x, st.Received-a.granted, t, func(units int64) { a.granted += units })
	}
	a.grantedTo, a.grantedUntil = st.From, t.Steady+keptFor
	h.renew(x, t)
	if lost > 0 {
		h.store.SpendElsewhere(x.id, &x.judging.Load().limit, t.Now, lost)
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

// grant has a region have more, of what is unspent here, and in the first place of
// what it has granted itself. Of what the two of them hold each is to have as much
// as its part in the demand; a region without demand keeps a small part of what it
// begins with, so that it can start, unless a single ask needs all.
func (h *Holdings) grant(x *holding, a *account, st *Statement, answer *Statement, t Time) {
	x.measure(t.Steady)
	a.promised = 0
	h.renew(x, t)
	peek := h.store.Peek(x.id, &x.judging.Load().limit, t.Now, 0)
	both := x.held + st.Holding
	target := h.rule(demands{x.demand, float64(st.Demand) / 1000}, both, st.Holding, peek.Remaining)
	floor := h.regions.start(x.whole.Capacity(), h.regions.self) / 8
	if st.Must > st.Holding {
		floor = 0
	}
	due := min(st.Wants, target-st.Holding, x.held-floor)
	if due <= 0 || due < both/16 && x.need() > x.held/2 {
		answer.Retry = h.retry(x, &peek, t.Now)
		return
	}
	units := min(due, peek.Remaining)
	back := h.release(x, min(units, a.received), t, func(units int64) { a.received -= units })
	if back > 0 {
		a.number = max(a.number+1, t.Now)
		a.waits = false
		answer.Number, answer.From, answer.Received = a.number, h.self, a.received
	}
	a.grantedUntil = t.Steady + keptFor
	units = back + h.release(x, units-back, t, func(units int64) { a.granted += units })
	if a.promised = due - units; a.promised > 0 {
		a.promisedTill = t.Steady + promiseFor
		answer.More = true
	}
	h.renew(x, t)
	if units == 0 {
		answer.Retry = h.retry(x, &peek, t.Now)
	}
}

// demands are units asked for in a second.
type demands struct{ own, theirs float64 }

// rule says how many of the units that two regions hold the one that asks is to
// have.
type rule func(d demands, both, theirs, unspent int64) int64

// byDemand gives each as much of both as it has of their demand.
func byDemand(d demands, both, _, _ int64) int64 {
	if d.own+d.theirs <= 0 {
		return both
	}
	return int64(math.Ceil(float64(both) * d.theirs / (d.own + d.theirs)))
}

// promiseFor is how long units are kept for a region that does not come for them.
const promiseFor = int64(time.Second)

// retry is when something may be unspent here.
func (h *Holdings) retry(x *holding, peek *bucket.Result, now int64) time.Duration {
	if peek.Remaining > 0 {
		return 0
	}
	return h.store.Peek(x.id, &x.judging.Load().limit, now, 1).RetryAfter
}

// Answered takes in a region's answer. ok is false if the regions do not agree how
// limits are shared out.
func (h *Holdings) Answered(from string, print uint64, st *Statement, t Time) (ok bool) {
	region := h.regions.index(from)
	if region < 0 || !h.agree(region, print) {
		return false
	}
	sh := h.shard(st.ID)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	x := sh.find(st.ID)
	if x == nil {
		return true
	}
	x.catchUp(&st.Limit)
	a := &x.accounts[region]
	h.heed(x, a, st, t)
	switch {
	case st.Answers == a.number && a.waits && st.Heard == st.Answers:
		gained := st.Granted - a.received
		a.received, a.receivedUntil = st.Granted, a.sent+term
		a.waits, a.known = false, true
		a.trip = t.Steady - a.sent
		switch {
		case gained > 0:
			a.refusals, a.again, a.hint = 0, t.Steady, 0
		case st.More:
			a.again, a.hint = t.Steady, 0
		default:
			a.refusals = min(a.refusals+1, 10)
			wait := x.refusal(a)
			if a.hint = 0; st.Retry > 0 {
				wait = min(wait, int64(st.Retry))
				a.hint = t.Steady + int64(st.Retry)
			}
			a.again = t.Steady + wait
		}
	case st.Heard > a.number:
		a.number, a.waits = st.Heard, false
	}
	h.renew(x, t)
	sh.push(x)
	return true
}

// refusal is how long a region is not asked for more that has refused so often:
// not so long that demand which moves is not followed within a Per.
func (x *holding) refusal(a *account) int64 {
	longest := min(max(int64(x.whole.Per)/4, 2*int64(ExchangeEvery)), longestRefusal)
	return min(int64(ExchangeEvery)<<a.refusals, longest)
}

// Elsewhere is the id of what the other regions have spent of a limit.
func Elsewhere(id bucket.ID) bucket.ID { return bucket.ID{Hi: id.Hi, Lo: ^id.Lo} }

// SpentElsewhere is what the other regions have told that they have spent, and that has
// not recovered.
func (h *Holdings) SpentElsewhere(id bucket.ID, now int64) int64 {
	used, _, _ := h.store.Used(Elsewhere(id), now)
	return used
}

// Unanswered says that statements to a region did not reach it, or were not
// answered.
func (h *Holdings) Unanswered(region string, sts []Statement, t Time) {
	at := h.regions.index(region)
	for i := range sts {
		sh := h.shard(sts[i].ID)
		sh.mu.Lock()
		if x := sh.find(sts[i].ID); x != nil {
			if a := &x.accounts[at]; a.number == sts[i].Number && a.waits {
				a.waits = false
				a.refusals = min(a.refusals+1, 10)
				a.again = t.Steady + x.refusal(a)
				a.reported = -1
			}
		}
		sh.mu.Unlock()
	}
}
