package view

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/weir-go/weir/bucket"
	countsync "github.com/weir-go/weir/sync"
)

// State is a state of a range of hashes, as one node knows it. A range without a state belongs to
// another member: the one that the ring assigns it to, as far as this node knows.
type State uint8

const (
	Held        State = 1 << iota // this node has authority
	Awaited                       // Member is to transfer the range to this node
	Vacant                        // no member is known to have the range: this node takes it at Until
	Abandoned                     // the holder ended while others were missing, and one of these may have the range
	Claimed                       // Abandoned, owned by this node, and all members are heard: this node asks them
	Transferred                   // this node gave the range to Member lately
)

// A range that this node claims stays abandoned until a member is found to have it or this node takes it.
const (
	awaitedOrVacant    = Awaited | Vacant
	abandonedOrClaimed = Abandoned | Claimed
)

// Entry is a state of one range.
type Entry struct {
	countsync.Range
	State  State
	Member string // of an Awaited or Transferred range
	Until  int64  // when an Awaited, Vacant or Transferred entry ends
}

// Patience is how long a node expects others not to know of a recent event: of a transfer, of a
// holder, or of a member that was missing. A hand-over in good health takes less time.
const Patience = 15 * time.Second

// Forever is the Until of an entry that only an event ends.
const Forever = math.MaxInt64

// authority is the table of the states of all ranges, at one moment. It is immutable: each
// transition returns another table. The ring assigns the ranges, and a transfer alone moves
// authority. A node that holds the range of another owner hands it over. A node that does not hold
// a range of its own waits for it, and passes checks back to the previous holder.
//
// A range may have several entries, which are neighbours and equal in First and Last. Held excludes
// all states but Transferred. A node has at most one of Awaited and Vacant, and one of Abandoned and
// Claimed. The states overlap in three cases:
//   - Awaited and Abandoned, where another member owns the range by now: that member takes this
//     node for its holder, which passes checks on to Member.
//   - Vacant and Abandoned or Claimed: all members said that they do not have the range.
//   - Transferred and any state, several times with the latest first: the new owner may not know
//     of the transfer yet, and takes this node for the holder.
type authority struct {
	entries []Entry          // sorted by First
	states  State            // of all entries
	held    countsync.Ranges // of the Held entries
	// Assigned is the set of hashes that the ring assigns to this node.
	Assigned countsync.Ranges
	// Settled reports whether this node holds what is assigned to it: the ring alone answers.
	Settled bool
	// Recalls reports whether the last transition found that no member has a range that this node
	// waited for. Other members may have replicas.
	Recalls bool
}

// Ranges returns the hashes that have one of the states.
func (a *authority) Ranges(states State) countsync.Ranges {
	if states == Held {
		return a.held
	}
	var ranges []countsync.Range
	for _, e := range a.entries {
		if e.State&states != 0 {
			ranges = append(ranges, e.Range)
		}
	}
	return countsync.NewRanges(ranges...)
}

// HasAny reports whether a range has one of the states.
func (a *authority) HasAny(states State) bool { return a.states&states != 0 }

// entriesOf returns the entries of a hash.
func (a *authority) entriesOf(hash uint64) []Entry {
	first := sort.Search(len(a.entries), func(i int) bool { return a.entries[i].Last >= hash })
	end := first
	for end < len(a.entries) && a.entries[end].First <= hash {
		end++
	}
	return a.entries[first:end]
}

// find returns the first of the entries with one of the states, or one without a state.
func find(entries []Entry, states State) Entry {
	for _, e := range entries {
		if e.State&states != 0 {
			return e
		}
	}
	return Entry{}
}

// pick appends the entries with one of the states.
func pick(dst, entries []Entry, states State) []Entry {
	for _, e := range entries {
		if e.State&states != 0 {
			dst = append(dst, e)
		}
	}
	return dst
}

// restate returns the table in which f has appended the entries of each range for the entries
// before, with these ranges assigned. Each of cuts is sorted hashes: no range reaches beyond one.
func (a *authority) restate(cuts [][]uint64, assigned countsync.Ranges, f func(dst []Entry, r countsync.Range, before []Entry) []Entry) authority {
	next := authority{Assigned: assigned, entries: make([]Entry, 0, len(a.entries))}
	rest, group := a.entries, 0
	for first, more := uint64(0), true; more; {
		for len(rest) > 0 && rest[0].Last < first {
			rest = rest[1:]
		}
		n := 0
		for n < len(rest) && rest[n].First <= first {
			n++
		}
		r := countsync.Range{First: first, Last: math.MaxUint64}
		switch {
		case n > 0:
			r.Last = rest[0].Last
		case len(rest) > 0:
			r.Last = rest[0].First - 1
		}
		for i := range cuts {
			for len(cuts[i]) > 0 && cuts[i][0] < first {
				cuts[i] = cuts[i][1:]
			}
			if len(cuts[i]) > 0 {
				r.Last = min(r.Last, cuts[i][0])
			}
		}
		group = next.join(group, len(next.entries), r, f(next.entries, r, rest[:n]))
		first, more = r.Last+1, r.Last < math.MaxUint64
	}
	for _, e := range next.entries {
		next.states |= e.State
		if e.State == Held {
			next.held = extend(next.held, e.Range)
		}
	}
	next.Settled = next.held.Equal(assigned)
	return next
}

// join adds the entries from end on, which are those of r, and returns where the last group of
// entries begins. If the group before touches r and is equal, it is extended.
func (a *authority) join(group, end int, r countsync.Range, entries []Entry) int {
	last, added := entries[group:end], entries[end:]
	for i := range added {
		added[i].Range = r
	}
	if len(last) == 0 || last[0].Last+1 != r.First || !slices.EqualFunc(last, added, func(x, y Entry) bool {
		return x.State == y.State && x.Member == y.Member && x.Until == y.Until
	}) {
		a.entries = entries
		return end
	}
	for i := range last {
		last[i].Last = r.Last
	}
	a.entries = entries[:end]
	return group
}

// cutsOf returns the last hash of each range, and the one before each.
func cutsOf(ranges countsync.Ranges) (cuts []uint64) {
	for _, r := range ranges {
		if r.First > 0 {
			cuts = append(cuts, r.First-1)
		}
		cuts = append(cuts, r.Last)
	}
	return cuts
}

// restateIn returns the view in which f has appended the entries of all parts of these ranges.
func (v *View) restateIn(ranges countsync.Ranges, f func(dst, before []Entry) []Entry) *View {
	next := *v
	next.authority = v.restate([][]uint64{cutsOf(ranges)}, v.Assigned, func(dst []Entry, r countsync.Range, before []Entry) []Entry {
		if !ranges.Contains(r.First) {
			return append(dst, before...)
		}
		return f(dst, before)
	})
	return &next
}

// WithStates returns the view in which ranges have these entries alone. It is for tests, which make
// views that no transition would.
func (v *View) WithStates(ranges countsync.Ranges, entries ...Entry) *View {
	return v.restateIn(ranges, func(dst, _ []Entry) []Entry { return append(dst, entries...) })
}

// ReceiveRanges returns the view in which a transfer of ranges to this node has arrived.
func (v *View) ReceiveRanges(ranges countsync.Ranges) *View {
	return v.restateIn(ranges, func(dst, before []Entry) []Entry {
		return pick(append(dst, Entry{State: Held}), before, Transferred)
	})
}

// TransferRanges returns the view in which this node has given ranges to another member.
func (v *View) TransferRanges(ranges countsync.Ranges, to string, now int64) *View {
	return v.restateIn(ranges, func(dst, before []Entry) []Entry {
		dst = append(pick(dst, before, awaitedOrVacant|abandonedOrClaimed), Entry{State: Transferred, Member: to, Until: now + int64(Patience)})
		return pick(dst, before, Transferred)
	})
}

// Excess returns the ranges that this node holds and the ring assigns to others.
func (v *View) Excess() countsync.Ranges { return v.held.Minus(v.Assigned) }

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

// holder returns the member that this node awaits id from, -1 if there is none.
func (v *View) holder(id bucket.ID) int { return v.memberOf(id, Awaited) }

// memberOf returns the known member of the first entry of id that has the state, -1 if there is none.
func (v *View) memberOf(id bucket.ID, state State) int {
	for _, e := range v.entriesOf(id.Hi) {
		if i, known := v.Named[NameHash(e.Member)]; known && e.State == state {
			return i
		}
	}
	return -1
}

// isAbandoned reports whether no member is known to have authority over id, and one that is missing
// may have it.
func (v *View) isAbandoned(id bucket.ID) bool {
	return v.HasAny(abandonedOrClaimed) && find(v.entriesOf(id.Hi), abandonedOrClaimed).State != 0
}

// Yields reports whether this node holds ranges that it has no right to any more: it was taken off
// the roster while it lived. The owners have authority by now, and receive its counts.
func (v *View) Yields() bool { return v.Joins() && len(v.held) > 0 }
