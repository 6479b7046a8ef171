package weir

import (
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
	// settled says that held is want: the ring alone answers.
	settled bool
}

// wait is what another member still holds.
type wait struct {
	ranges countsync.Ranges
	from   string // the member that the ring gave it to before; empty if that has left, and gave it to nobody knows whom
	until  int64  // when it is given up: whoever has it takes longer than any hand-over
}

// patience is how long a member that can be asked is waited for. Who leaves has
// handOverFor.
const patience = handOverFor + 5*time.Second

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
	if next.Self >= 0 {            // who has said goodbye holds nothing
		a.held = v.held
		if next.ring != v.ring {
			a.held = a.held.Union(v.inherited(next, now))
		}
	}
	if next.serves() {
		a.want = v.want
		if next.ring != v.ring || a.want == nil {
			a.want = next.owned(next.Self)
		}
	}
	missing := a.want.Minus(a.held)
	await := func(w wait) {
		if w.ranges = w.ranges.Intersect(missing); len(w.ranges) == 0 {
			return
		}
		_, stays := next.named[nameHash(w.from)]
		switch {
		case now >= w.until:
			return
		case w.from == "", next.expects(w.from):
		case !stays && v.expects(w.from):
			w.from, w.until = "", now+int64(holdDown)
		case !stays && next.scattered(now):
			w.from, w.until = "", now+int64(patience)
		default:
			return
		}
		a.waits = append(a.waits, w)
		missing = missing.Minus(w.ranges)
	}
	var before countsync.Ranges
	for _, w := range v.waits {
		before = before.Union(w.ranges)
		if w.from != "" || next.Self < 0 {
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
	if next.ring != v.ring {
		for at, i := range v.points {
			if i != v.Self && len(missing) > 0 {
				await(wait{v.owned(i).Minus(before), v.ring.Members()[at], now + int64(patience)})
			}
		}
	}
	a.held = a.held.Union(missing).Union(unclaimed)
	a.settled = a.held.Equal(a.want)
	return a
}

// inherited is what this node has stood in for, once the owner is off the roster:
// to be forgotten, or to start again, leaves its authority to the stand-in. Who
// has left where this node did not see it has left it to another.
func (v *view) inherited(next *view, now int64) countsync.Ranges {
	var all countsync.Ranges
	for _, i := range v.points {
		m := &v.Members[i]
		if _, stays := next.named[nameHash(m.Name)]; stays || v.reaches(i) || next.scattered(now) && !next.restarted(m) {
			continue
		}
		all = all.Union(v.stoodIn(i))
	}
	return all
}

// stoodIn is the part of what a member owns that this node stands in for.
func (v *view) stoodIn(owner int) countsync.Ranges {
	var ranges []countsync.Range
	v.ring.Arcs(func(first, last uint64) {
		if v.points[v.ring.Owner(last)] == owner && v.standIn(bucket.ID{Hi: last}, owner) == v.Self {
			ranges = append(ranges, countsync.Range{First: first, Last: last})
		}
	})
	return countsync.NewRanges(ranges...)
}

// scattered says that members are missing or were until just now: what they say of
// the roster this node has not seen.
func (v *view) scattered(now int64) bool {
	return v.side < len(v.points) || v.healed != 0 && uint64(now-v.healed) < uint64(patience)
}

// restarted says that another runs where a member ran.
func (v *view) restarted(m *cluster.Member) bool {
	return slices.ContainsFunc(v.Members, func(o cluster.Member) bool { return o.Addr == m.Addr })
}

// expects says that a member may yet hand over what it had.
func (v *view) expects(name string) bool {
	i, known := v.named[nameHash(name)]
	return known && i != v.Self && !v.away[i]
}

// given is the view in which ranges have come, by `yours`.
func (v *view) given(ranges countsync.Ranges) *view { return v.holding(v.held.Union(ranges)) }

// ceded is the view in which ranges have gone.
func (v *view) ceded(ranges countsync.Ranges) *view { return v.holding(v.held.Minus(ranges)) }

func (v *view) holding(held countsync.Ranges) *view {
	next := *v
	next.held, next.waits = held, nil
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
func (v *view) holder(id bucket.ID) int {
	for _, w := range v.waits {
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
	return v.Self >= 0 && len(v.held) > 0 && v.Members[v.Self].Announced == cluster.Joining
}

// Holds is part of countsync.Roles: this node has authority over id.
func (v *view) Holds(id bucket.ID) bool {
	if v.settled {
		return v.owner(id) == v.Self && v.Self >= 0
	}
	return v.held.Contains(id.Hi)
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
	if !v.reaches(to) {
		to = v.standIn(id, to)
	}
	if to < 0 {
		return 0
	}
	return v.hashes[to]
}

// StandIn is part of countsync.Roles: who answers for id in the stead of an owner
// that is not reached, 0 if it is.
func (v *view) StandIn(id bucket.ID) countsync.Member {
	if v.side == len(v.points) {
		return 0
	}
	owner := v.owner(id)
	if owner < 0 || owner == v.Self || v.reaches(owner) {
		return 0
	}
	if s := v.standIn(id, owner); s >= 0 {
		return v.hashes[s]
	}
	return 0
}

// Targets is part of countsync.Roles: who is to have the state of an id that this
// node holds, or stands in for. They are the successors (one more for each that
// is away, and is brought up to date when it comes back), the owner if that is
// another, and who is about to join and will be one of these.
func (v *view) Targets(dst []countsync.Member, id bucket.ID) []countsync.Member {
	for _, i := range v.audience(make([]int, 0, 8), id.Hi, v.Holds(id)) {
		dst = append(dst, v.hashes[i])
	}
	if len(v.joiners) > 0 && v.Holds(id) {
		var room [8]int
		for _, j := range v.joiners {
			if j.among(room[:0], id.Hi, v.copies) {
				dst = append(dst, v.hashes[j.member])
			}
		}
	}
	return dst
}

// audience appends the members of the ring that are to have the state of an id
// with this hash from this node: the owner if it is another, and is reached or to
// be given what this node holds; the next copies in ring order that are not away,
// and those away that come before them.
func (v *view) audience(dst []int, hash uint64, holds bool) []int {
	var room [16]int
	for most := v.copies + 2; ; most *= 2 {
		order := v.ring.Order(room[:0], hash, most)
		members, copies := dst, v.copies
		for k, at := range order {
			i := v.points[at]
			if i == v.Self || k == 0 && !holds && !v.reaches(i) || k > 0 && copies == 0 {
				continue
			}
			members = append(members, i)
			if !v.away[i] && copies > 0 {
				copies--
			}
		}
		if copies == 0 || len(order) < most {
			return members
		}
	}
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
// holds or stands in for, as Targets says, and of what it has copies of, what that
// member stands in for. Who answers for a lost owner need not have the latest
// copy: it may have been cut off from it, and this node not.
func (v *view) audiences(kept countsync.Ranges) map[countsync.Member]countsync.Ranges {
	held, others, standIns := make(map[int][]countsync.Range), make(map[int][]countsync.Range), make(map[int][]countsync.Range)
	var room [16]int
	v.ring.Arcs(func(first, last uint64) {
		r := countsync.Range{First: first, Last: last}
		for _, i := range v.audience(room[:0], last, true) {
			held[i] = append(held[i], r)
		}
		id := bucket.ID{Hi: last}
		owner := v.owner(id)
		if owner == v.Self || v.reaches(owner) {
			return
		}
		s := v.standIn(id, owner)
		if s >= 0 && s != v.Self {
			standIns[s] = append(standIns[s], r)
		}
		if s == v.Self {
			for _, i := range v.audience(room[:0], last, false) {
				others[i] = append(others[i], r)
			}
		}
	})
	audiences := make(map[countsync.Member]countsync.Ranges, len(held))
	for i, rs := range held {
		audiences[v.hashes[i]] = countsync.NewRanges(rs...).Intersect(v.held)
	}
	for i, rs := range standIns {
		m := v.hashes[i]
		audiences[m] = audiences[m].Union(countsync.NewRanges(rs...).Intersect(kept).Minus(v.held))
	}
	for i, rs := range others {
		m := v.hashes[i]
		audiences[m] = audiences[m].Union(countsync.NewRanges(rs...).Minus(v.held))
	}
	for _, j := range v.joiners {
		var rs []countsync.Range
		j.ring.Arcs(func(first, last uint64) {
			if j.among(room[:0], last, v.copies) {
				rs = append(rs, countsync.Range{First: first, Last: last})
			}
		})
		audiences[v.hashes[j.member]] = countsync.NewRanges(rs...).Intersect(v.held)
	}
	return audiences
}

// kept is what this node has copies of, given what it had before: all that an
// owner that is reached sends it. What an owner that is not reached sent it before
// is the latest that may be left.
func (v *view) kept(before countsync.Ranges) countsync.Ranges {
	var sent, lost []countsync.Range
	var room [16]int
	v.ring.Arcs(func(first, last uint64) {
		r := countsync.Range{First: first, Last: last}
		owner := v.owner(bucket.ID{Hi: last})
		if !v.reaches(owner) {
			lost = append(lost, r)
		} else if owner != v.Self && v.isSent(room[:0], last) {
			sent = append(sent, r)
		}
	})
	return countsync.NewRanges(lost...).Intersect(before).Union(countsync.NewRanges(sent...))
}

// isSent says that the owner of a hash has this node among its successors.
func (v *view) isSent(room []int, hash uint64) bool {
	for most := v.copies + 2; ; most *= 2 {
		order := v.ring.Order(room, hash, most)
		left := v.copies
		for _, at := range order[min(1, len(order)):] {
			i := v.points[at]
			if i == v.Self {
				return true
			}
			if left -= 1; v.away[i] {
				left++
			}
			if left == 0 {
				return false
			}
		}
		if len(order) < most {
			return false
		}
	}
}
