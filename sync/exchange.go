package countsync

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir/bucket"
)

// Statement is a message of a region to another region about an id.
type Statement struct {
	ID     bucket.ID
	Limit  bucket.Limit
	Number int64  // rises with each statement of a region to another about the id that is not an answer; if 0, Received is not stated
	From   Member // member that decides about the id in the region of the sender; 0 if Number is 0

	// The following fields are about units that the receiver has granted.
	Received int64 // maximum number of units that the sender has, until it accepts an answer to this Number
	Debt     int64 // number of units that the sender has spent in excess of its units
	Wants    int64 // number of additional units that the sender requests
	Must     int64 // largest ask that the sender had to deny
	Demand   int64 // recent demand, in units per 1,000 seconds
	Usual    int64 // demand, averaged over a longer time (usualSpan), in the unit of Demand
	Holding  int64 // number of units that the sender has in all
	Forgot   bool  // the sender does not know how many of its own units the receiver has

	// The following fields are about units that the sender has granted.
	Answers    int64         // Number of the statement that this statement answers, 0 for none
	Granted    int64         // units that the receiver may have from now on
	Used       int64         // number of the additional units in Granted that are already spent
	LastNumber int64         // highest Number that the sender has received; also stated if Forgot is set
	More       bool          // more units follow as soon as they are unspent
	Retry      time.Duration // time after which there may be more units

	Spent  int64 // units spent since Series began
	Series int64 // higher for each new series
}

// Exchange is a list of statements from a region to another region.
type Exchange struct {
	Region     string
	Print      uint64 // hash of the Regions of the sender
	Statements []Statement
}

const exchangeVersion = 1

// maxStatements is the number of statements for which a message always has room, together with
// its other contents.
const maxStatements = 320

// Flags of a statement.
const (
	statementMore = 1 << iota
	statementForgot
)

var errExchange = errors.New("countsync: malformed exchange")

// Append appends the encoded exchange to b.
func (e *Exchange) Append(b []byte) []byte {
	b = append(b, exchangeVersion, byte(len(e.Region)))
	b = append(b, e.Region...)
	b = binary.LittleEndian.AppendUint64(b, e.Print)
	var known limits
	for i := range e.Statements {
		st := &e.Statements[i]
		at, ok := known.index(&st.Limit)
		if !ok {
			continue // no region accepts such a limit
		}
		flags := byte(0)
		if st.More {
			flags |= statementMore
		}
		if st.Forgot {
			flags |= statementForgot
		}
		b = append(appendID(b, st.ID), flags)
		b = known.append(b, &st.Limit, at)
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

func (st *Statement) numbers() [14]*int64 {
	return [14]*int64{
		&st.Number, &st.Received, &st.Debt, &st.Wants, &st.Must, &st.Demand, &st.Usual, &st.Holding,
		&st.Answers, &st.Granted, &st.Used, &st.LastNumber, &st.Spent, &st.Series,
	}
}

// ParseExchange decodes an exchange that Append has encoded.
func ParseExchange(b []byte) (e Exchange, err error) {
	r := reader{b: b}
	if version := r.byte(); r.err == nil && version != exchangeVersion {
		return e, fmt.Errorf("%w: the version is %d, and must be %d", errExchange, version, exchangeVersion)
	}
	n := int(r.byte())
	if n > len(r.b) {
		return e, fmt.Errorf("%w: the name of the region has %d bytes, but only %d bytes remain", errExchange, n, len(r.b))
	}
	e.Region = string(r.b[:n])
	r.b = r.b[n:]
	e.Print = r.uint64()
	var known limits
	for len(r.b) > 0 {
		st := Statement{ID: r.id()}
		flags := r.byte()
		st.More, st.Forgot = flags&statementMore != 0, flags&statementForgot != 0
		st.Limit = known.read(&r)
		for _, n := range st.numbers() {
			*n = r.number()
		}
		st.Retry = time.Duration(min(r.uvarint(), uint64(366*24*time.Hour)))
		if st.Number > 0 {
			st.From = r.uint64()
		}
		if r.err == nil && (flags&^(statementMore|statementForgot) != 0 || st.Limit.Validate() != nil || len(e.Statements) == maxStatements) {
			r.fail("statement %d has an invalid limit or unknown flags, or is one too many: at most %d are allowed", len(e.Statements), maxStatements)
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

// Exchange returns an exchange of this region with the given statements.
func (h *Holdings) Exchange(sts []Statement) Exchange {
	return Exchange{Region: h.regions.names[h.regions.self], Print: h.regions.print, Statements: sts}
}

// Due returns the statements that must be sent to other regions now, by region. For most regions
// there is usually no statement. The function answers reports whether this node decides about an id.
// The result changed contains the ids whose holdings must be copied to other members of this region.
func (h *Holdings) Due(t Time, answers func(bucket.ID) bool) (due map[string][]Statement, changed []bucket.ID) {
	h.tick(t)
	d := dues{to: make(map[string][]Statement), reports: h.reports}
	var batch []*holding
	swept := t.Monotonic
	for i := range h.shards {
		sh := &h.shards[i]
		batch = sh.batch(batch[:0], t.Monotonic)
		for _, x := range batch {
			sh.mu.Lock()
			switch {
			case sh.byID[x.id] != x:
			case !answers(x.id):
				h.store.ClearPart(x.id)
				if t.Monotonic-x.seen > 2*keptFor {
					h.drop(sh, x) // a copy that no node has renewed
				}
			case h.visit(sh, x, t, &d):
				changed = append(changed, x.id)
			}
			sh.mu.Unlock()
		}
		swept = min(swept, sh.swept)
	}
	h.partsUntil.Store(swept + validFor)
	return d.to, changed
}

// dues contains the statements of a round.
type dues struct {
	to      map[string][]Statement
	reports int // number of reports of spent units that may still be made
}

// visitParts is the number of rounds in which all holdings are visited, even without an ask.
const visitParts = 20

// visit renews a holding if necessary, makes the statements about it that are due, drops the
// holding if it is not needed any more, and reports whether its copies must be updated.
func (h *Holdings) visit(sh *holdingShard, x *holding, t Time, d *dues) (changed bool) {
	switch {
	case t.Monotonic >= x.until, x.unsure, x.windowEnded(t.Now):
		h.renew(x, t)
		changed = true
	case x.until-t.Monotonic < validFor:
		h.store.ClearPart(x.id)
	}
	h.measure(x, t.Monotonic)
	usable := x.usable()
	peek := h.store.Peek(x.id, &usable, t.Now, 0)
	if peek.ResetAfter == 0 {
		x.startSeries(t.Now)
	}
	b := balance{denied: x.largest, spent: x.spent(), spare: h.spareUnits(x, &peek, t)}
	x.largest = 0
	if !x.unsure {
		b.wants = x.wantedUnits(&peek, b.denied)
	}
	busy := b.wants > 0 || h.SpentElsewhere(x.id, t.Now) > 0
	for i := range x.accounts {
		if i == h.regions.self {
			continue
		}
		a := &x.accounts[i]
		busy = busy || a.granted > 0 || a.received > 0 || !a.known && !x.unsure || b.spent != a.reported
		if x.isDue(a, &b, t, d) {
			changed = h.emit(x, i, &b, t, d) || changed
		}
	}
	switch {
	case b.wants > 0, x.passing > 0, 2*peek.Remaining <= peek.Limit && t.Monotonic-x.seen < restless:
		sh.push(x)
	case !busy && peek.ResetAfter == 0 && t.Monotonic-x.seen > keptFor:
		h.drop(sh, x)
		changed = true
	}
	return changed
}

// balance contains the numbers for the statements about a holding in a round.
type balance struct {
	wants  int64 // units to be requested
	denied int64 // largest ask that was denied since the last visit
	spare  int64 // units that can be returned to the regions that granted them
	spent  int64 // number of units that were spent since the series began
}

// isDue reports whether a statement about a holding must be sent to a region in this visit. A
// statement requests or renews units, returns units, or asks which units the region has. If the
// round has reports left, a statement that only reports spent units can also be due. No statement
// is due within ExchangeEvery of the last statement to the region, or while that statement has no
// answer, for up to answerTimeout.
func (x *holding) isDue(a *account, b *balance, t Time, d *dues) bool {
	since := t.Monotonic - a.sent
	if a.waits && since >= answerTimeout {
		a.waits = false
	}
	if a.waits || a.sent != 0 && since < int64(ExchangeEvery) {
		return false
	}
	asks := (b.wants > 0 || !a.known) && t.Monotonic >= a.again
	holds := a.received > 0 && (b.spare > 0 || since >= renewAfter)
	if asks || holds {
		return true
	}
	if d.reports <= 0 || b.spent == a.reported || since < reportEvery(&x.whole) {
		return false
	}
	d.reports--
	return true
}

// emit makes a statement about a holding to a region, and returns spare units to that region.
// emit reports whether copies of the holding must be updated.
func (h *Holdings) emit(x *holding, region int, b *balance, t Time, d *dues) (changed bool) {
	a := &x.accounts[region]
	if b.spare > 0 && a.received > 0 {
		back, _ := h.release(x, a, min(b.spare, a.received), t)
		b.spare -= back
		x.passing = max(0, x.passing-back)
		changed = true
	}
	h.renew(x, t)
	st := h.statement(x, a, t)
	if a.wants = b.wants > 0; a.wants {
		st.Wants, st.Must = b.wants, b.denied
		x.must = max(x.must, b.denied)
	}
	to := h.regions.names[region]
	d.to[to] = append(d.to[to], st)
	return changed || a.received > 0 || a.granted > 0
}

// restless is the time after the last ask during which a holding is visited in each round, if at
// least half of its units are used.
const restless = int64(2 * time.Second)

// drop removes a holding.
func (h *Holdings) drop(sh *holdingShard, x *holding) {
	moved := sh.drop(x)
	h.store.ClearPart(x.id)
	h.store.ClearPart(moved.id)
	h.kept.Add(-1)
}

// statement returns the next statement about a holding to a region.
func (h *Holdings) statement(x *holding, a *account, t Time) Statement {
	a.number = max(a.number+1, t.Now)
	a.sent, a.waits, a.reported = t.Monotonic, true, x.spent()
	st := Statement{
		ID: x.id, Limit: x.whole, Number: a.number, From: h.self, Received: a.received, Debt: h.debt(x, t.Now) + a.owes,
		Demand: int64(min(x.demand*1000, 1<<60)), Usual: int64(min(x.usual*1000, 1<<60)), Holding: x.held, Spent: a.reported, Series: x.series,
	}
	if !a.known {
		st.Forgot, st.LastNumber = true, a.heard
		if a.asked == 0 {
			a.asked = a.number // the answer may arrive after the next statement was made
		}
	}
	return st
}

// reportEvery returns the time between two reports of spent units to a region, if no other
// statement is due: a tenth of Per, but between 1 s and 10 s.
func reportEvery(l *bucket.Limit) int64 { return min(max(int64(l.Per)/10, 1e9), 10e9) }

// recentSpan returns the time in which recent demand fades to about a third. With a longer time, the
// average would not follow the demand within a Per. With a shorter time, it would follow chance.
func recentSpan(l *bucket.Limit) float64 { return min(max(float64(l.Per)/8, 100e6), 1e9) }

// usualSpan returns the time in which usual demand fades to about a third. If the windows of all
// regions are exhausted, each region asks in bursts when the next window begins. In this case, only
// the demand over several windows differs between the regions.
func usualSpan(l *bucket.Limit) float64 { return min(max(4*float64(l.Per), 1e9), 20e9) }

// measure updates both averages of the demand, in which past asks fade exponentially. Units that
// the store has collected, and recordSpent has not recorded yet, are missing for a moment.
func (h *Holdings) measure(x *holding, monotonic int64) {
	since := float64(max(1, monotonic-x.at))
	asked := max(x.counted, x.asked+max(0, h.store.Uncollected(x.id)))
	rate := float64(asked-x.counted) * 1e9 / since
	x.demand += (rate - x.demand) * -math.Expm1(-since/recentSpan(&x.whole))
	x.usual += (rate - x.usual) * -math.Expm1(-since/usualSpan(&x.whole))
	if asked != x.counted {
		x.counted, x.seen = asked, monotonic
	}
	x.at = max(x.at, monotonic)
}

// neededUnits returns the number of units that are enough for a demand: the units of a Per, or of
// the time in which a bucket fills, and a quarter more.
func (x *holding) neededUnits(demand float64) int64 {
	return int64(min(1.25*demand*recoveryTime(&x.whole)/1e9, 1<<60))
}

func recoveryTime(l *bucket.Limit) float64 {
	return max(float64(l.Per), float64(l.Per)*float64(l.Capacity())/float64(l.Rate))
}

// wantedUnits returns the number of additional units that this region requests. It requests
// units once at least half of its units are used, before more are needed, or once an ask was
// denied.
func (x *holding) wantedUnits(peek *bucket.Result, largest int64) int64 {
	most := x.whole.Capacity()
	want := min(max(x.neededUnits(x.demand), largest), most) - x.held
	if largest == 0 && 2*peek.Remaining > peek.Limit {
		return 0
	}
	return max(0, want)
}

// spareUnits returns the number of units that can be returned to the regions that granted them:
// units that a third region has asked for, or all unspent units if there was no ask for a while.
// As long as there are asks, another region must request the units that it needs.
func (h *Holdings) spareUnits(x *holding, peek *bucket.Result, t Time) int64 {
	switch {
	case t.Monotonic-x.seen >= min(max(int64(x.whole.Per), term), 6*term):
		return peek.Remaining
	case x.passing > 0 && !x.whole.IsBucket():
		used, _, _ := h.store.Used(x.id, t.Now)
		return min(x.passing, max(0, x.held-x.keptOf(x.held)-used))
	}
	return x.passing
}

// Serve applies a statement of another region, and returns the answer. ok is false if there is
// no answer, because the other region is unknown, because the regions do not divide limits in
// the same way, or because there is no room for the id.
func (h *Holdings) Serve(from string, print uint64, st *Statement, t Time) (answer Statement, ok bool) {
	region := h.regions.index(from)
	if region < 0 || !h.agree(region, print) {
		return answer, false
	}
	sh := h.lock(st.ID)
	defer sh.mu.Unlock()
	x := h.holdingOf(sh, st.ID, &st.Limit, t)
	if x == nil {
		return answer, false
	}
	x.catchUp(&st.Limit)
	a := &x.accounts[region]
	isNew := h.applyReceived(x, a, st, t)
	a.reported = x.spent()
	answer = Statement{ID: x.id, Answers: st.Number, LastNumber: a.heard, Spent: a.reported, Series: x.series}
	had := a.received
	if isNew && st.Wants > 0 {
		h.grant(x, region, st, &answer, t)
	}
	if a.received < had || st.Forgot {
		// An answer to the previous number that is still in transit does not apply to this
		// statement.
		a.number, a.waits = max(a.number+1, t.Now), false
	}
	if !a.waits {
		answer.Number, answer.From, answer.Received, answer.Debt = a.number, h.self, a.received, h.debt(x, t.Now)+a.owes
	}
	if st.Number == a.heard && st.From == a.grantedTo {
		answer.Granted, answer.Used = min(a.granted, max(0, h.ownUnits(x)+a.granted)), a.moved
	}
	answer.Limit, answer.Holding = x.whole, x.held
	sh.push(x)
	return answer, true
}

// Unknown returns the regions that have not shown yet that they divide limits in the same way.
func (h *Holdings) Unknown() (names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, agreed := range h.agreed {
		if !agreed {
			names = append(names, h.regions.names[i])
		}
	}
	return names
}

// Meet records the Print that a region has sent, even if the region states nothing. Meet reports
// whether the regions divide limits in the same way.
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

// applyReceived applies the statement of another region about the units that this region has
// granted. Units that the other region no longer has return to this region. If the statement is from the
// member that had these units, they return as unspent units, except for the debt of the
// region and for spent units that moved with them. Otherwise they return as spent, because
// their state is unknown. The result isNew reports whether the statement has a higher number than
// all previous statements of the region.
func (h *Holdings) applyReceived(x *holding, a *account, st *Statement, t Time) (isNew bool) {
	if st.Series > a.series {
		a.series, a.theirs = st.Series, 0
	}
	if st.Series == a.series && st.Spent > a.theirs {
		h.store.SpendElsewhere(ElsewhereID(x.id), &x.whole, t.Now, st.Spent-a.theirs)
		a.theirs = st.Spent
	}
	if st.LastNumber > a.number {
		a.number, a.waits = st.LastNumber, false // number of an earlier node of this region
	}
	h.renew(x, t)
	if st.Number <= a.heard {
		return false
	}
	a.heard = st.Number
	var lost int64
	less := a.granted - st.Received
	switch {
	case less > 0:
		if lost = less; a.grantedTo == st.From {
			lost = min(less, st.Debt+a.moved)
		}
		a.granted -= less
	case !a.known:
		a.granted = min(st.Received, h.regions.start(x.whole.Capacity(), h.regions.self))
	}
	a.moved = 0
	a.grantedTo, a.grantedUntil = st.From, t.Monotonic+keptFor
	h.renew(x, t)
	if lost > 0 {
		h.store.SpendElsewhere(x.id, &x.part, t.Now, lost)
	}
	if less > 0 {
		h.keep(x, t)
	}
	return true
}

// keep reserves units that have arrived after a denied ask, until the caller may have repeated
// the ask. Otherwise, if several regions ask for a few units, this region could grant the units to
// the next region before a caller spends them. In a bucket, that could happen before the level has
// fallen by a whole unit.
func (h *Holdings) keep(x *holding, t Time) {
	if x.must == 0 {
		return
	}
	x.keeps = min(x.must, x.held)
	peek := h.store.Peek(x.id, &x.part, t.Now, max(1, x.keeps))
	x.keepTill = t.Monotonic + int64(min(peek.RetryAfter, time.Duration(recoveryTime(&x.whole)))) + promiseFor
	x.must = 0
}

// catchUp adopts later numbers, which have a higher Version or belong to a later window. A region
// with other numbers of the same Version judges by its own numbers.
func (x *holding) catchUp(l *bucket.Limit) {
	w := &x.whole
	switch {
	case l.Version > w.Version:
		*w = *l
	case l.Version == w.Version && l.Algorithm == bucket.FixedWindow && w.Algorithm == bucket.FixedWindow && l.Start > w.Start && w.Start != 0:
		w.Start, w.Per = l.Start, l.Per
	}
}

// grant gives units to a region. First it returns units that this region has received from that
// region, then it grants units of the initial part of this region. The rule determines how many
// of the units in both regions each region should have. A region without demand keeps a small
// part of its initial units, so that it can start when demand comes. It gives up this part,
// too, if the requesting region had to deny an ask that is larger than all units of the
// requesting region. Units of a third region go back to that region, where they can be
// requested.
func (h *Holdings) grant(x *holding, region int, st *Statement, answer *Statement, t Time) {
	a := &x.accounts[region]
	h.measure(x, t.Monotonic)
	a.promised = 0
	h.renew(x, t)
	usable := x.usable()
	peek := h.store.Peek(x.id, &usable, t.Now, 0)
	theirs := min(st.Holding, x.whole.Capacity())
	both := x.held + theirs
	d := demands{x.demand, float64(st.Demand) / 1000}
	if x.lacked != 0 && float64(t.Monotonic-x.lacked) < recentSpan(&x.whole) {
		d = demands{x.usual, float64(st.Usual) / 1000}
	}
	target := h.rule(d, both, theirs, peek.Remaining)
	mine := h.regions.start(x.whole.Capacity(), h.regions.self)
	// Each region has as much of its initial part as it needs, no matter how much other regions
	// request.
	target = max(target, min(theirs+st.Wants, h.regions.start(x.whole.Capacity(), region), both-mine))
	floor := max(mine/floorPart, min(mine, x.neededUnits(d.own)))
	if st.Must > theirs {
		floor = 0
	}
	keeps := floor
	if t.Monotonic < x.keepTill {
		keeps = max(floor, x.keeps)
	}
	due := min(st.Wants, target-theirs, x.held-keeps)
	slight := due < min(both/16, theirs/4) && x.neededUnits(x.demand) > x.held/2 // may be due to chance
	if due <= 0 || slight || !x.allKnown() {
		answer.Retry = h.retryAfter(x, &peek, t.Now)
		return
	}
	able := min(due, max(0, h.ownUnits(x)-floor)+a.received)
	if x.passing = due - able; x.passing > 0 {
		x.passTill = t.Monotonic + promiseFor
	}
	able = min(able, max(0, x.held-x.promisedUnits())) // no unit is promised twice
	units := able
	if !x.whole.IsBucket() {
		units = min(able, peek.Remaining)
	}
	back, granted := h.release(x, a, units, t)
	if units = back + granted; granted > 0 {
		a.grantedUntil = t.Monotonic + keptFor
	}
	if a.promised = able - units; a.promised > 0 {
		later := h.store.Peek(x.id, &x.part, t.Now, max(1, min(a.promised, able/8)))
		answer.More, answer.Retry = true, min(later.RetryAfter, time.Duration(longestRefusal))
		a.promisedTill = t.Monotonic + int64(answer.Retry) + promiseFor
		h.renew(x, t)
	} else if units == 0 {
		answer.Retry = h.retryAfter(x, &peek, t.Now)
	}
}

// release takes units from this region for another region. Units that the other region has
// granted return to it, and the rest of the units is granted. The part of this region is reduced
// before the used units are read, so no take can spend the released units in between. In a bucket,
// if some of these units are already spent, the spent units move as well, because they drain at the
// rate of the units that move. In a window, as many units as are spent stay in this region instead.
func (h *Holdings) release(x *holding, a *account, units int64, t Time) (back, granted int64) {
	back = min(units, a.received)
	granted = units - back
	a.received -= back
	a.granted += granted
	h.renew(x, t)
	used, _, _ := h.store.Used(x.id, t.Now)
	switch spent := min(units, used-x.held+x.keptOf(x.held)); {
	case spent <= 0:
	case x.whole.IsBucket():
		h.store.SpendElsewhere(x.id, &x.part, t.Now, -spent)
		a.owes += min(spent, back)
		a.moved += max(0, spent-back)
	default:
		stays := min(spent, granted)
		a.granted -= stays
		a.received += spent - stays
		back, granted = back-(spent-stays), granted-stays
		h.renew(x, t)
	}
	return back, granted
}

// floorPart is the divisor for the part of its initial units that a region keeps without demand.
const floorPart = 16

// promisedUnits returns the number of units that are reserved for other regions.
func (x *holding) promisedUnits() (units int64) {
	for i := range x.accounts {
		units += x.accounts[i].promised
	}
	return units
}

// allKnown reports whether the units that other regions have of this region are known.
func (x *holding) allKnown() bool {
	return !slices.ContainsFunc(x.accounts, func(a account) bool { return !a.known })
}

// demands contains the demand of two regions, in units per second.
type demands struct{ own, theirs float64 }

// rule returns how many of the units of two regions the requesting region should have.
type rule func(d demands, both, theirs, unspent int64) int64

// byDemand divides the units in proportion to the demand. A region that has units does not get a
// remainder that cannot be divided, because the remainder would move back and forth.
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

// promiseFor is the time for which units are reserved for a region that does not fetch them.
const promiseFor = int64(time.Second)

// retryAfter returns the time after which units may be unspent here.
func (h *Holdings) retryAfter(x *holding, peek *bucket.Result, now int64) time.Duration {
	if peek.Remaining > 0 {
		return 0
	}
	return h.store.Peek(x.id, &x.part, now, 1).RetryAfter
}

// Answered applies the answer of a region. ok is false if the region is unknown, or if the
// regions do not divide limits in the same way.
func (h *Holdings) Answered(from string, print uint64, st *Statement, t Time) (ok bool) {
	region := h.regions.index(from)
	if region < 0 || !h.agree(region, print) {
		return false
	}
	sh := h.lock(st.ID)
	defer sh.mu.Unlock()
	x := sh.byID[st.ID]
	if x == nil {
		return true
	}
	x.catchUp(&st.Limit)
	a := &x.accounts[region]
	h.applyReceived(x, a, st, t)
	if a.asked != 0 && st.Answers >= a.asked && st.Number == a.heard {
		a.known = true
	}
	h.renew(x, t)
	sh.push(x)
	if st.Answers != a.number || !a.waits || st.LastNumber != st.Answers {
		return true
	}
	gained := st.Granted - a.received
	a.received, a.receivedUntil = st.Granted, a.sent+term
	a.waits, a.owes = false, 0
	a.trip = t.Monotonic - a.sent
	switch {
	case st.More:
		a.refusals, a.again, a.hint = 0, t.Monotonic+min(int64(st.Retry), longestRefusal), 0
	case gained > 0:
		a.refusals, a.again, a.hint = 0, t.Monotonic, 0
	case a.wants:
		a.refuse(x, t)
		if a.hint = 0; st.Retry > 0 {
			a.hint = t.Monotonic + int64(st.Retry)
			a.again = min(a.again, a.hint)
		}
	}
	h.renew(x, t)
	if used := min(gained, st.Used); used > 0 {
		h.store.SpendElsewhere(x.id, &x.part, t.Now, used)
	}
	if gained > 0 {
		h.keep(x, t)
	}
	return true
}

// refuse delays the next request to a region. The delay grows with the number of refusals, but
// stays short enough to follow changing demand within a Per.
func (a *account) refuse(x *holding, t Time) {
	a.refusals = min(a.refusals+1, 10)
	longest := min(max(int64(x.whole.Per)/4, 2*int64(ExchangeEvery)), longestRefusal)
	a.again = t.Monotonic + min(int64(ExchangeEvery)<<a.refusals, longest)
}

// ElsewhereID returns the ID for the units that other regions have spent of a limit. Both IDs have the
// same Hi, which determines the place on the ring, and whether an ID belongs to a Global limit.
func ElsewhereID(id bucket.ID) bucket.ID { return bucket.ID{Hi: id.Hi, Lo: ^id.Lo} }

// SpentElsewhere returns the units that the other regions have stated as spent and that have not
// recovered.
func (h *Holdings) SpentElsewhere(id bucket.ID, now int64) int64 {
	used, _, _ := h.store.Used(ElsewhereID(id), now)
	return used
}

// Unanswered records that statements to a region were not delivered or not answered.
func (h *Holdings) Unanswered(region string, sts []Statement, t Time) {
	at := h.regions.index(region)
	if at < 0 {
		return
	}
	for i := range sts {
		sh := h.lock(sts[i].ID)
		if x := sh.byID[sts[i].ID]; x != nil {
			if a := &x.accounts[at]; a.number == sts[i].Number && a.waits {
				a.waits = false
				a.refuse(x, t)
				a.reported = -1
			}
		}
		sh.mu.Unlock()
	}
}
