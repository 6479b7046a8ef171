package view

import (
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/ring"
	countsync "github.com/weir-go/weir/sync"
)

// Wait is what another member still holds. What this node does not want any more,
// as somebody else has joined, is kept in mind: the joiner takes this node for
// its holder, and passes checks on to it.
type Wait struct {
	Ranges countsync.Ranges
	From   string // the member that the ring gave it to before, or that has said that it has it; empty if nobody is known to
	Until  int64  // when it is given up; never while this node owns it and its holder is known
}

// Patience is how long a node bears in mind that what happened just now others may not
// know: which member it gave authority to, took for a holder, or did not see. It
// is longer than what is handed over in good health takes.
const Patience = 15 * time.Second

// Forever is until something happens.
const Forever = math.MaxInt64

// passOn is the authority in the view that follows v. What the ring gives to this
// node is waited for while the one that had it before can be asked, and is this
// node's own otherwise: nobody else is left that had it. A member that has left handed over
// by the ring that it saw, so for a moment whoever got it may yet pass it on.
func (v *View) passOn(next *View, now int64) authority {
	if v == nil {
		v = &View{Ring: ring.New(nil)}
	}
	var a authority
	var theirs []Wait
	if next.Self >= 0 { // a node that has said goodbye holds nothing
		var mine countsync.Ranges
		if !next.scattered(now) {
			mine = v.inherited(next)
		}
		for _, w := range v.leaving(next, mine, now) {
			mine = mine.Minus(w.Ranges)
			theirs = append(theirs, w)
		}
		a.Held = v.Held.Union(mine)
		a.Abandoned = v.abandonedIn(next, now).Minus(a.Held)
	}
	if next.Serves() {
		a.Want = v.Want
		if next.Ring != v.Ring || a.Want == nil {
			a.Want = next.owned(next.Self)
		}
	}
	switch {
	case v.MeetsApart(next):
		a.Held, a.Abandoned = nil, countsync.All()
	case len(v.Abandoned) > 0 && v.Serves() && !next.scattered(now):
		a.Abandoned = v.Abandoned.Minus(a.Held).Intersect(a.Want)
		a.Claims = a.Abandoned
	}
	w := awaiting{authority: a, v: v, next: next, now: now, missing: a.Want.Minus(a.Held).Minus(a.Abandoned)}
	w.all(theirs)
	a = w.authority
	a.Held = a.Held.Union(w.missing).Union(w.unclaimed)
	a.Abandoned, a.Claims = a.Abandoned.Minus(a.Held), a.Claims.Minus(a.Held)
	a.Gave = slices.DeleteFunc(slices.Clone(v.Gave), func(w Wait) bool { return now >= w.Until })
	a.Settled = a.Held.Equal(a.Want)
	return a
}

// awaiting finds what the node of the next view waits for, and from which member. What is
// missing in the end no member has: it is the node's own.
type awaiting struct {
	authority
	v, next   *View
	now       int64
	missing   countsync.Ranges // that the node is to own, does not hold, and waits for from no member yet
	unclaimed countsync.Ranges // what no member is left to give
}

// all goes through what was waited for, what those may still hold that leave, and what the
// members before had.
func (a *awaiting) all(theirs []Wait) {
	var before countsync.Ranges
	for _, w := range a.v.Waits {
		before = before.Union(w.Ranges)
		if w.From != "" || a.next.Self < 0 {
			a.again(w)
		} else {
			a.unnamed(w)
		}
	}
	for _, w := range theirs {
		a.from(w)
	}
	if a.next.Ring == a.v.Ring {
		return
	}
	for at, i := range a.v.Points {
		if i != a.v.Self && len(a.missing) > 0 {
			a.from(Wait{Ranges: a.v.owned(i).Minus(before), From: a.v.Ring.Members()[at], Until: Forever})
		}
	}
}

// again waits for what was waited for already, and bears in mind what another owns by now.
func (a *awaiting) again(w Wait) {
	if others := w.Ranges.Minus(a.Want).Minus(a.Held); len(others) > 0 && a.now < w.Until && a.next.expects(w.From) {
		a.Waits = append(a.Waits, Wait{others, w.From, min(w.Until, a.now+int64(Patience))})
	}
	a.from(w)
}

// unnamed goes on waiting for what no member is known to have, until its time is over. The
// member that the ring gives it to by now waits for this node.
func (a *awaiting) unnamed(w Wait) {
	if w.Ranges = w.Ranges.Minus(a.Held); a.now >= w.Until {
		a.unclaimed = a.unclaimed.Union(w.Ranges)
	} else if len(w.Ranges) > 0 {
		a.Waits = append(a.Waits, w)
	}
	a.missing = a.missing.Minus(w.Ranges)
}

// from waits for what is missing of a member's ranges while that member can be asked, and
// for a moment where it has just gone.
func (a *awaiting) from(w Wait) {
	if w.Ranges = w.Ranges.Intersect(a.missing); len(w.Ranges) == 0 {
		return
	}
	_, stays := a.next.Named[NameHash(w.From)]
	switch {
	case a.next.expects(w.From):
		w.Until = Forever
	case !stays && a.v.expects(w.From):
		w.From, w.Until, a.Recalls = "", a.now+int64(HoldDown), true
	default:
		if a.next.scattered(a.now) { // it may give it to a member that is missing
			a.Abandoned = a.Abandoned.Union(w.Ranges)
			a.missing = a.missing.Minus(w.Ranges)
			a.Recalls = true
		}
		return
	}
	a.Waits = append(a.Waits, w)
	a.missing = a.missing.Minus(w.Ranges)
}

// inherited is what a member held that nobody reached and that is off the roster now,
// and that this node is the next in ring order to have: to be forgotten, or to start
// again, leaves authority to the stand-in, once all others are reached. A member that has just
// stood in for that one, for a moment, does not.
func (v *View) inherited(next *View) countsync.Ranges {
	if next.Ring == v.Ring {
		return nil
	}
	var ranges []countsync.Range
	v.Ring.Arcs(func(first, last uint64) {
		owner := v.Owner(bucket.ID{Hi: last})
		if _, stays := next.Named[v.Hashes[owner]]; !stays && !v.Reaches(owner) && v.remains(next, last) == v.Self {
			ranges = append(ranges, countsync.Range{First: first, Last: last})
		}
	})
	return countsync.NewRanges(ranges...)
}

// remains is the first member in ring order that has points in the next view as well,
// -1 if there is none.
func (v *View) remains(next *View, hash uint64) int {
	var room [16]int
	for most := 4; ; most *= 4 {
		order := v.Ring.Order(room[:0], hash, most)
		for _, at := range order {
			if _, stays := slices.BinarySearch(next.Ring.Members(), v.Ring.Members()[at]); stays {
				return v.Points[at]
			}
		}
		if len(order) < most {
			return -1
		}
	}
}

// leaving is what of these ranges those may still hold who leave: they found
// nobody to give it to.
func (v *View) leaving(next *View, ranges countsync.Ranges, now int64) []Wait {
	if len(ranges) == 0 {
		return nil
	}
	var waits []Wait
	for i, m := range v.Members {
		began := m.Announced == cluster.Serving && !v.Reaches(i) // apart from this side, which has yet to meet it
		if m.Announced == cluster.Joining || began || slices.Contains(v.Points, i) || !next.expects(m.Name) {
			continue
		}
		names := append(slices.Clone(v.Ring.Members()), m.Name)
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
			waits = append(waits, Wait{Ranges: w, From: m.Name, Until: Forever})
			ranges = ranges.Minus(w)
		}
	}
	return waits
}

// abandonedIn is what is without authority in the next view, because its member has
// gone while others are missing, or is away and the ring gives it to another; or
// may be soon, because its member leaves and the ring gives it to one that is
// missing: the member that is handed it instead may end before that one is back.
func (v *View) abandonedIn(next *View, now int64) countsync.Ranges {
	if !next.scattered(now) {
		return nil
	}
	all := v.Abandoned
	if len(all) > 0 && !v.Serves() && next.Serves() {
		all = nil // a joiner is given what it owns, by the member that has taken it by then
	}
	if next.Ring == v.Ring {
		return all
	}
	for _, i := range v.Points {
		switch j, stays := next.Named[v.Hashes[i]]; {
		case !stays && !next.strays(v.Hashes[i], now):
			// Where it was, it was alone.
		case !stays:
			all = all.Union(v.owned(i))
		case next.Away[j]:
			all = all.Union(v.owned(i).Minus(next.owned(j)))
		case !slices.Contains(next.Points, j):
			for _, k := range next.Points {
				if !next.Reaches(k) {
					all = all.Union(v.owned(i).Intersect(next.owned(k)))
				}
			}
		}
	}
	return all
}

// scattered reports whether members are missing or were until just now: what happened
// among them, this node does not know.
func (v *View) scattered(now int64) bool {
	return v.Side < len(v.Points) || v.healing(now)
}

// strays reports whether others than a member that has gone are missing, or were until
// just now.
func (v *View) strays(gone uint64, now int64) bool {
	for _, i := range v.Points {
		if v.Next[i] < 0 {
			return true
		}
	}
	return v.healing(now) && slices.ContainsFunc(v.back, func(member uint64) bool { return member != gone })
}

// expects reports whether a member may yet hand over what it had.
func (v *View) expects(name string) bool {
	i, known := v.Named[NameHash(name)]
	return known && i != v.Self && !v.Away[i]
}

// Given is the view in which ranges have come, by `yours`.
func (v *View) Given(ranges countsync.Ranges) *View { return v.holding(v.Held.Union(ranges)) }

// Ceded is the view in which ranges have gone to another member.
func (v *View) Ceded(ranges countsync.Ranges, to string, now int64) *View {
	next := v.holding(v.Held.Minus(ranges))
	next.Gave = append([]Wait{{Ranges: ranges, From: to, Until: now + int64(Patience)}}, v.Gave...)
	return next
}

func (v *View) holding(held countsync.Ranges) *View {
	next := *v
	next.Held, next.Waits, next.Abandoned, next.Claims = held, nil, v.Abandoned.Minus(held), v.Claims.Minus(held)
	next.Recalls = false
	for _, w := range v.Waits {
		if r := w.Ranges.Minus(held); len(r) > 0 {
			next.Waits = append(next.Waits, Wait{r, w.From, w.Until})
		}
	}
	next.Settled = held.Equal(v.Want)
	return &next
}

// owned is all hashes that the ring gives to a member.
func (v *View) owned(member int) countsync.Ranges {
	var ranges []countsync.Range
	v.Ring.Arcs(func(first, last uint64) {
		if v.Points[v.Ring.Owner(last)] == member {
			ranges = append(ranges, countsync.Range{First: first, Last: last})
		}
	})
	return countsync.NewRanges(ranges...)
}

// holder is the member that has what this node waits for, -1 if that is nobody.
func (v *View) holder(id bucket.ID) int { return v.whoHas(id, v.Waits) }

// whoHas is the first member of these that has id, -1 if there is none.
func (v *View) whoHas(id bucket.ID, waits []Wait) int {
	for _, w := range waits {
		if w.Ranges.Contains(id.Hi) {
			if i, known := v.Named[NameHash(w.From)]; known {
				return i
			}
		}
	}
	return -1
}

// Yields reports whether this node holds what it has no right to any more: it was
// taken off the roster while it lived. The member that owns its ids now has authority,
// and is sent what this node counted.
func (v *View) Yields() bool {
	return v.Joins() && len(v.Held) > 0
}

// authority is what this node has the final word on, at one moment: a set of
// hashes, which moves by `yours` alone. The ring says who should hold what; who
// holds anything else hands it over, and who does not hold what it should waits
// for it, and passes checks back to the one that had it. It is immutable.
type authority struct {
	Held  countsync.Ranges
	Want  countsync.Ranges // what the ring gives this node
	Waits []Wait
	// Abandoned is the set of hashes without a known holder. The holder ended while other members were
	// missing, and a missing member may have them. The owner stands in.
	Abandoned countsync.Ranges
	// Claims are the abandoned ranges that the ring gives to this node, once all members have been
	// heard for a while. This node asks all members, and takes a range if no member has it. No node
	// joins until then.
	Claims countsync.Ranges
	// Gave is the members that this node gave authority to lately, the last first: one that joined
	// at that moment, and owns it by now, may take this node for its holder.
	Gave []Wait
	// Settled reports whether held is want: the ring alone answers.
	Settled bool
	// Recalls reports whether a member that had something this node waits for is not there any
	// more, or that no member has it: nobody has it now, and others have copies.
	Recalls bool
}
