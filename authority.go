package weir

import (
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/ring"
	countsync "github.com/weir-go/weir/sync"
)

// authority is what this node has the final word on, at one moment: a set of
// hashes, which moves by `yours` alone. The ring says who should hold what; who
// holds anything else hands it over, and who does not hold what it should waits
// for it, and passes checks back to the one that had it. It is immutable.
type authority struct {
	held  countsync.Ranges
	want  countsync.Ranges // what the ring gives this node
	waits []wait
	// abandoned are what a member held that went while others were missing: to
	// whom, or with what last count, these may know. Until all have been heard
	// for a while nobody takes it, and whoever the ring gives it to stands in.
	abandoned countsync.Ranges
	// claims are the abandoned ranges that the ring gives this node, or gave it until another
	// joined: that one did not know of them, and waits for this node.
	claims countsync.Ranges
	// gave is to whom this node gave authority lately, the last first: who joined
	// at that moment, and owns it by now, may take this node for its holder.
	gave []wait
	// settled says that held is want: the ring alone answers.
	settled bool
	// recalls says that who had something that this node waits for is not there any
	// more, or that no member has it: nobody has it now, and others have copies.
	recalls bool
}

// wait is what another member still holds. What this node does not want any more,
// as somebody else has joined, is kept in mind: who has joined takes this node for
// its holder, and passes checks on to it.
type wait struct {
	ranges countsync.Ranges
	from   string // the member that the ring gave it to before, or that has said that it has it; empty if nobody is known to
	until  int64  // when it is given up; never while this node owns it and its holder is known (locate.go)
}

// patience is how long a node bears in mind that what happened just now others may not
// know: to whom it gave authority, whom it took for a holder, who was out of sight. It
// is longer than what is handed over in good health takes.
const patience = 15 * time.Second

// forever is until something happens.
const forever = math.MaxInt64

// passOn is the authority in the view that follows v. What the ring gives to this
// node is waited for while the one that had it before can be asked, and is this
// node's own otherwise: nobody else is left who had it. Who has left handed over
// by the ring that it saw, so for a moment whoever got it may yet pass it on.
func (v *view) passOn(next *view, now int64) authority {
	if v == nil {
		v = &view{ring: ring.New(nil)}
	}
	var a authority
	var unclaimed countsync.Ranges // what nobody is left to give
	var theirs []wait
	if next.Self >= 0 { // who has said goodbye holds nothing
		mine := v.inherited(next)
		if next.scattered(now) {
			a.claims, mine = mine, nil
		}
		for _, w := range v.leaving(next, mine, now) {
			mine = mine.Minus(w.ranges)
			theirs = append(theirs, w)
		}
		if !next.scattered(now) {
			mine = mine.Union(v.claims) // who joins just then waits for this node
		}
		a.held = v.held.Union(mine)
		a.abandoned = v.abandonedIn(next, now).Minus(a.held)
	}
	if v.meetsApart(next) {
		a.held, a.abandoned = nil, countsync.All()
	}
	if next.serves() {
		a.want = v.want
		if next.ring != v.ring || a.want == nil {
			a.want = next.owned(next.Self)
		}
	}
	missing := a.want.Minus(a.held).Minus(a.abandoned)
	await := func(w wait) {
		if w.ranges = w.ranges.Intersect(missing); len(w.ranges) == 0 {
			return
		}
		_, stays := next.named[nameHash(w.from)]
		switch {
		case next.expects(w.from):
			w.until = forever
		case !stays && v.expects(w.from):
			w.from, w.until, a.recalls = "", now+int64(holdDown), true
		default:
			if next.scattered(now) { // it may give it to one of those who are missing
				a.abandoned = a.abandoned.Union(w.ranges)
				missing = missing.Minus(w.ranges)
				a.recalls = true
			}
			return
		}
		a.waits = append(a.waits, w)
		missing = missing.Minus(w.ranges)
	}
	var before countsync.Ranges
	for _, w := range v.waits {
		before = before.Union(w.ranges)
		if w.from != "" || next.Self < 0 {
			if others := w.ranges.Minus(a.want).Minus(a.held); len(others) > 0 && now < w.until && next.expects(w.from) {
				a.waits = append(a.waits, wait{others, w.from, min(w.until, now+int64(patience))})
			}
			await(w)
			continue
		}
		// Whoever the ring gives it to by now waits for this node.
		if w.ranges = w.ranges.Minus(a.held); now >= w.until {
			unclaimed = unclaimed.Union(w.ranges)
		} else if len(w.ranges) > 0 {
			a.waits = append(a.waits, w)
		}
		missing = missing.Minus(w.ranges)
	}
	for _, w := range theirs {
		await(w)
	}
	if next.ring != v.ring {
		for at, i := range v.points {
			if i != v.Self && len(missing) > 0 {
				await(wait{ranges: v.owned(i).Minus(before), from: v.ring.Members()[at], until: forever})
			}
		}
	}
	a.held = a.held.Union(missing).Union(unclaimed)
	switch {
	case len(a.abandoned) == 0:
		a.claims = nil
	case !next.serves() || v.hasApart(next):
		a.claims = a.want.Intersect(a.abandoned)
	default:
		a.claims = a.claims.Union(v.claims).Union(a.want).Intersect(a.abandoned)
	}
	a.gave = slices.DeleteFunc(slices.Clone(v.gave), func(w wait) bool { return now >= w.until })
	a.settled = a.held.Equal(a.want)
	return a
}

// inherited is what a member held that nobody reached and that is off the roster now,
// and that this node is the next in ring order to have: to be forgotten, or to start
// again, leaves authority to the stand-in, once all others are reached. Who has just
// stood in for that one, for a moment, does not.
func (v *view) inherited(next *view) countsync.Ranges {
	if next.ring == v.ring {
		return nil
	}
	var ranges []countsync.Range
	v.ring.Arcs(func(first, last uint64) {
		owner := v.owner(bucket.ID{Hi: last})
		if _, stays := next.named[v.hashes[owner]]; !stays && !v.reaches(owner) && v.remains(next, last) == v.Self {
			ranges = append(ranges, countsync.Range{First: first, Last: last})
		}
	})
	return countsync.NewRanges(ranges...)
}

// remains is the first member in ring order that has points in the next view as well,
// -1 if there is none.
func (v *view) remains(next *view, hash uint64) int {
	var room [16]int
	for most := 4; ; most *= 4 {
		order := v.ring.Order(room[:0], hash, most)
		for _, at := range order {
			if _, stays := slices.BinarySearch(next.ring.Members(), v.ring.Members()[at]); stays {
				return v.points[at]
			}
		}
		if len(order) < most {
			return -1
		}
	}
}

// leaving is what of these ranges those may still hold who leave: they found
// nobody to give it to.
func (v *view) leaving(next *view, ranges countsync.Ranges, now int64) []wait {
	if len(ranges) == 0 {
		return nil
	}
	var waits []wait
	for i, m := range v.Members {
		began := m.Announced == cluster.Serving && !v.reaches(i) // apart from this side, which has yet to meet it
		if m.Announced == cluster.Joining || began || slices.Contains(v.points, i) || !next.expects(m.Name) {
			continue
		}
		names := append(slices.Clone(v.ring.Members()), m.Name)
		slices.Sort(names)
		r := ring.New(names)
		at, _ := slices.BinarySearch(r.Members(), m.Name)
		var had []countsync.Range
		r.Arcs(func(first, last uint64) {
			if r.Owner(last) == at {
				had = append(had, countsync.Range{First: first, Last: last})
			}
		})
		if w := countsync.NewRanges(had...).Intersect(ranges); len(w) > 0 {
			waits = append(waits, wait{ranges: w, from: m.Name, until: forever})
			ranges = ranges.Minus(w)
		}
	}
	return waits
}

// abandonedIn is what is without authority in the next view, because its member has
// gone while others are missing, or is away and the ring gives it to another; or
// may be soon, because its member leaves and the ring gives it to one that is
// missing: who is handed it instead may end before that one is back.
func (v *view) abandonedIn(next *view, now int64) countsync.Ranges {
	if !next.scattered(now) {
		return nil
	}
	all := v.abandoned
	if len(all) > 0 && !v.serves() && next.serves() {
		all = nil // who joins is given what it owns, by whoever has taken it by then
	}
	if next.ring == v.ring {
		return all
	}
	for _, i := range v.points {
		switch j, stays := next.named[v.hashes[i]]; {
		case !stays && !next.strays(v.hashes[i], now):
			// Where it was, it was alone.
		case !stays:
			all = all.Union(v.owned(i))
		case next.away[j]:
			all = all.Union(v.owned(i).Minus(next.owned(j)))
		case !slices.Contains(next.points, j):
			for _, k := range next.points {
				if !next.reaches(k) {
					all = all.Union(v.owned(i).Intersect(next.owned(k)))
				}
			}
		}
	}
	return all
}

// scattered says that members are missing or were until just now: what happened
// among them, this node does not know.
func (v *view) scattered(now int64) bool {
	return v.side < len(v.points) || v.healing(now)
}

// strays says that others than a member that has gone are missing, or were until
// just now.
func (v *view) strays(gone uint64, now int64) bool {
	for _, i := range v.points {
		if v.next[i] < 0 {
			return true
		}
	}
	return v.healing(now) && slices.ContainsFunc(v.back, func(member uint64) bool { return member != gone })
}

// expects says that a member may yet hand over what it had.
func (v *view) expects(name string) bool {
	i, known := v.named[nameHash(name)]
	return known && i != v.Self && !v.away[i]
}

// given is the view in which ranges have come, by `yours`.
func (v *view) given(ranges countsync.Ranges) *view { return v.holding(v.held.Union(ranges)) }

// ceded is the view in which ranges have gone to another member.
func (v *view) ceded(ranges countsync.Ranges, to string, now int64) *view {
	next := v.holding(v.held.Minus(ranges))
	next.gave = append([]wait{{ranges: ranges, from: to, until: now + int64(patience)}}, v.gave...)
	return next
}

func (v *view) holding(held countsync.Ranges) *view {
	next := *v
	next.held, next.waits, next.abandoned, next.claims = held, nil, v.abandoned.Minus(held), v.claims.Minus(held)
	next.recalls = false
	for _, w := range v.waits {
		if r := w.ranges.Minus(held); len(r) > 0 {
			next.waits = append(next.waits, wait{r, w.from, w.until})
		}
	}
	next.settled = held.Equal(v.want)
	return &next
}

// owned is all hashes that the ring gives to a member.
func (v *view) owned(member int) countsync.Ranges {
	var ranges []countsync.Range
	v.ring.Arcs(func(first, last uint64) {
		if v.points[v.ring.Owner(last)] == member {
			ranges = append(ranges, countsync.Range{First: first, Last: last})
		}
	})
	return countsync.NewRanges(ranges...)
}

// holder is the member that has what this node waits for, -1 if that is nobody.
func (v *view) holder(id bucket.ID) int { return v.whoHas(id, v.waits) }

// whoHas is the first member of these that has id, -1 if there is none.
func (v *view) whoHas(id bucket.ID, waits []wait) int {
	for _, w := range waits {
		if w.ranges.Contains(id.Hi) {
			if i, known := v.named[nameHash(w.from)]; known {
				return i
			}
		}
	}
	return -1
}

// yields says that this node holds what it has no right to any more: it was
// taken off the roster while it lived. Whoever owns its ids now has authority,
// and is sent what this node counted.
func (v *view) yields() bool {
	return v.joins() && len(v.held) > 0
}

// Holds is part of countsync.Roles: this node has authority over id.
func (v *view) Holds(id bucket.ID) bool {
	if v.settled {
		return v.owner(id) == v.Self && v.Self >= 0
	}
	return v.held.Contains(id.Hi)
}

// Holder is part of countsync.Roles: who has authority over id, whether it is reached or
// not.
func (v *view) Holder(id bucket.ID) countsync.Member {
	holder := v.owner(id)
	switch {
	case v.settled:
	case v.Self >= 0 && v.held.Contains(id.Hi):
		return v.hashes[v.Self]
	case holder >= 0 && holder == v.Self:
		holder = v.holder(id)
	}
	if holder < 0 || v.abandoned.Contains(id.Hi) {
		return 0
	}
	return v.hashes[holder]
}

// Answers is part of countsync.Roles: who answers for id now. What comes to a
// node that has left, in a frame that was under way for long, is not for it to
// answer.
func (v *view) Answers(id bucket.ID) countsync.Member {
	if v.Self >= 0 && v.Holds(id) {
		return v.hashes[v.Self]
	}
	to := v.owner(id)
	if to >= 0 && to == v.Self {
		to = v.holder(id)
	}
	if !v.reaches(to) || v.Stalls(to) {
		to = v.standIn(id, to)
	}
	if to < 0 && v.nobodyServes() {
		to = v.eldest()
	}
	if to < 0 {
		return 0
	}
	return v.hashes[to]
}

// Targets is part of countsync.Roles: who is to have the state of an id that this
// node holds, stands in for, or gives a copy of as it leaves. They are the successors (one more for each that
// is away, and is brought up to date when it comes back), the owner if that is
// another, and who is about to join and will be one of these.
func (v *view) Targets(dst []countsync.Member, id bucket.ID) []countsync.Member {
	for _, i := range v.audience(make([]int, 0, 8), id.Hi, v.Holds(id)) {
		dst = append(dst, v.hashes[i])
	}
	if joiners := v.admitted(); len(joiners) > 0 && (v.Holds(id) || v.nobodyServes()) {
		var room [8]int
		for _, j := range joiners {
			if j.among(room[:0], id.Hi, v.copies) {
				dst = append(dst, v.hashes[j.member])
			}
		}
	}
	return dst
}

// audience appends the members of the ring that are to have the state of an id
// with this hash from this node: the owner if it is another, and is reached or to
// be given what this node holds; the next copies in ring order that are not doubled,
// and those doubled that come before them. Where this node leaves and has given everything
// away it is none of these any more, and there is one beyond the owner.
func (v *view) audience(dst []int, hash uint64, holds bool) []int {
	var room [16]int
	all := v.copies
	if all > 0 && v.leaves() && len(v.held) == 0 {
		all++
	}
	for most := all + 2; ; most *= 2 {
		order := v.ring.Order(room[:0], hash, most)
		members, copies := dst, all
		for k, at := range order {
			i := v.points[at]
			if i == v.Self || k == 0 && !holds && !v.reaches(i) || k > 0 && copies == 0 {
				continue
			}
			members = append(members, i)
			if !v.doubled[i] && copies > 0 {
				copies--
			}
		}
		if copies == 0 || len(order) < most {
			return members
		}
	}
}

// admitted is the joiners that are to have counts now. While ranges are abandoned that
// is nobody: who joins knows of none, and would wait for the one that had them last.
func (v *view) admitted() []joiner {
	if len(v.abandoned) > 0 && !v.nobodyServes() {
		return nil
	}
	return v.joiners
}

// among says that the joiner will own the hash, or be one of so many successors.
func (j *joiner) among(room []int, hash uint64, copies int) bool {
	for _, at := range j.ring.Order(room, hash, copies+1) {
		if at == j.at {
			return true
		}
	}
	return false
}

// audiences is what each member is to have the states of: of all that this node
// holds or stands in for, as Targets says, and of the rest what that member stands
// in for. Who answers for a lost owner need not have the latest copy: it may have
// been cut off from it, and this node not. So may an owner that was itself away.
func (v *view) audiences() map[countsync.Member]countsync.Ranges {
	held, firsts, seconds := make(map[int][]countsync.Range), make(map[int][]countsync.Range), make(map[int][]countsync.Range)
	var lost []countsync.Range
	var room [16]int
	v.ring.Arcs(func(first, last uint64) {
		r := countsync.Range{First: first, Last: last}
		for _, i := range v.audience(room[:0], last, true) {
			held[i] = append(held[i], r)
		}
		id := bucket.ID{Hi: last}
		owner := v.owner(id)
		knows := v.reaches(owner) && !v.missesSuccessors(owner)
		if knows && len(v.abandoned) == 0 {
			return
		}
		if !knows {
			lost = append(lost, r)
		}
		s := v.successor(id)
		if s >= 0 && s != v.Self {
			firsts[s] = append(firsts[s], r)
		}
		if s == v.Self {
			for _, i := range v.audience(room[:0], last, false) {
				seconds[i] = append(seconds[i], r)
			}
		}
	})
	stoodIn := countsync.NewRanges(lost...).Union(v.abandoned).Minus(v.held)
	audiences := make(map[countsync.Member]countsync.Ranges, len(held))
	for i, rs := range held {
		audiences[v.hashes[i]] = countsync.NewRanges(rs...).Intersect(v.held)
	}
	for i, rs := range firsts {
		m := v.hashes[i]
		audiences[m] = audiences[m].Union(countsync.NewRanges(rs...).Intersect(stoodIn))
	}
	for i, rs := range seconds {
		m := v.hashes[i]
		audiences[m] = audiences[m].Union(countsync.NewRanges(rs...).Intersect(stoodIn))
	}
	left := v.held
	if v.nobodyServes() && (v.leaves() || v.eldest() == v.Self) {
		left = countsync.All()
	}
	for _, j := range v.admitted() {
		var rs []countsync.Range
		j.ring.Arcs(func(first, last uint64) {
			if j.among(room[:0], last, v.copies) {
				rs = append(rs, countsync.Range{First: first, Last: last})
			}
		})
		audiences[v.hashes[j.member]] = countsync.NewRanges(rs...).Intersect(left)
	}
	return audiences
}

// missesSuccessors says that a member was away until just now, or unknown, and somebody
// is missing or has gone who may have been given meanwhile what the ring gives to it.
func (v *view) missesSuccessors(member int) bool {
	return (v.side < len(v.points) || len(v.abandoned) > 0) &&
		slices.ContainsFunc(v.back, func(back uint64) bool { return back == 0 || back == v.hashes[member] })
}

// nobodyServes says that no member has points: all are about to have some, or leave. Until
// the eldest begins, the others tell it of what they spend, and it tells them of what it
// has, as the ring names nobody who is to have copies. Who leaves last tells it of its
// copies of what lost members held, too.
func (v *view) nobodyServes() bool { return len(v.points) == 0 }

// leaves says that this node hands over what it has.
func (v *view) leaves() bool { return v.Self >= 0 && v.Members[v.Self].Announced == cluster.Leaving }

// stays says that this node neither leaves nor has left. Who does stands in for nobody: it
// may be closed before it has told of that.
func (v *view) stays() bool { return v.Self >= 0 && !v.leaves() }

// successions is what each member comes to have copies of as this node leaves: of every
// hash it is the last that is to have one.
func (v *view) successions() map[countsync.Member]countsync.Ranges {
	arcs := make(map[int][]countsync.Range)
	var room [16]int
	v.ring.Arcs(func(first, last uint64) {
		if to := v.audience(room[:0], last, true); len(to) > 1 { // the first is the owner
			i := to[len(to)-1]
			arcs[i] = append(arcs[i], countsync.Range{First: first, Last: last})
		}
	})
	successions := make(map[countsync.Member]countsync.Ranges, len(arcs))
	for i, rs := range arcs {
		successions[v.hashes[i]] = countsync.NewRanges(rs...)
	}
	return successions
}

// owesAs says that audiences are the same in both views.
func (v *view) owesAs(o *view) bool {
	return v.ring == o.ring && v.Self == o.Self && slices.Equal(v.hashes, o.hashes) &&
		slices.Equal(v.doubled, o.doubled) && slices.EqualFunc(v.next, o.next, func(a, b int) bool { return a < 0 == (b < 0) }) &&
		v.held.Equal(o.held) && v.abandoned.Equal(o.abandoned) && slices.Equal(v.joiners, o.joiners)
}
