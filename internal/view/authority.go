package view

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/weir-go/weir/bucket"
	countsync "github.com/weir-go/weir/sync"
)

// State is a state of a range of hashes, as far as a node knows. A range without a state belongs to
// the member to which the ring assigns the range, as far as the node knows.
type State uint8

const (
	Held        State = 1 << iota // this node has authority
	Awaited                       // Member is to transfer the range to this node
	Vacant                        // no member is known to have the range: this node takes the range at Until
	Abandoned                     // no member is known to have the range, but a member that is missing, or was until lately, or a member of another ring may have it
	Claimed                       // no member is known to have the range, this node owns it, and all members are connected: this node asks them for the holder
	Transferred                   // this node transferred the range to Member lately
)

// A range that this node claims stays abandoned until a member is found to have the range, or this node
// takes the range.
const (
	awaitedOrVacant    = Awaited | Vacant
	abandonedOrClaimed = Abandoned | Claimed
)

// Entry is a state of a range.
type Entry struct {
	countsync.Range
	State  State
	Member string // the giver of an Awaited range, or the receiver of a Transferred range
	Until  int64  // monotonic time at which an Awaited, Vacant or Transferred entry ends
}

// Patience is the time after an event for which a node assumes that other members may not know of
// the event: a transfer, a new holder, or the return of a missing member. The hand-over of a
// healthy cluster takes less time.
const Patience = 15 * time.Second

// Forever is the Until of an entry that only an event ends.
const Forever = math.MaxInt64

// authority is the table of the states of all ranges, at a moment. A table never changes: each transition
// returns a new table. The ring assigns each range to a member, but authority does not move until it is
// transferred. A node hands over the ranges of other owners. A node that does not hold a range of its own
// waits for the range, and passes checks back to the previous holder.
//
// A range may have several entries, which are neighbours and equal in First and Last. A Held range
// has no other state, except Transferred. A range is never both Awaited and Vacant, and never both
// Abandoned and Claimed. A range has several states in three cases:
//   - Awaited and Abandoned: another member owns the range by now. That member may still take this
//     node for the holder and send checks, which this node passes on to Member.
//   - Vacant, and Abandoned or Claimed: no member is known to have the range. No node joins until
//     this node takes the range.
//   - Transferred, and any state: the new owner may not know of the transfer yet, and takes this node
//     for the holder. A range may have several Transferred entries; the latest is the first.
type authority struct {
	entries []Entry          // sorted by First
	states  State            // the states of all entries
	held    countsync.Ranges // the ranges of the Held entries
	// Assigned is the set of hashes that the ring assigns to this node.
	Assigned countsync.Ranges
	// Settled reports whether this node holds exactly the ranges that are assigned to it. In that
	// case the ring alone determines who has authority.
	Settled bool
	// Recalls reports whether the last transition found that no member has a range that this node
	// waited for. Other members may have replicas.
	Recalls bool
}

// Ranges returns the hashes that have any of the states.
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

// HasAny reports whether a range has any of the states.
func (a *authority) HasAny(states State) bool { return a.states&states != 0 }

// entriesOf returns the entries of the range that contains a hash.
func (a *authority) entriesOf(hash uint64) []Entry {
	first := sort.Search(len(a.entries), func(i int) bool { return a.entries[i].Last >= hash })
	end := first
	for end < len(a.entries) && a.entries[end].First <= hash {
		end++
	}
	return a.entries[first:end]
}

// find returns the first of the entries with any of the states, or an Entry without a state.
func find(entries []Entry, states State) Entry {
	for _, e := range entries {
		if e.State&states != 0 {
			return e
		}
	}
	return Entry{}
}

// pick appends the entries with any of the states.
func pick(dst, entries []Entry, states State) []Entry {
	for _, e := range entries {
		if e.State&states != 0 {
			dst = append(dst, e)
		}
	}
	return dst
}

// restate returns a new table with the given assigned ranges. It divides the hashes into ranges at
// the ends of the present entries, and after each hash of cuts. For each range, f appends the new
// entries to dst, given the last hash of the range and the present entries of the range.
func (a *authority) restate(cuts []uint64, assigned countsync.Ranges, f func(dst []Entry, hash uint64, before []Entry) []Entry) authority {
	next := authority{Assigned: assigned}
	for _, e := range a.entries {
		cuts = append(cuts, e.First-1, e.Last)
	}
	cuts = append(cuts, math.MaxUint64)
	slices.Sort(cuts)
	r, group := countsync.Range{}, 0
	for _, r.Last = range slices.Compact(cuts) {
		group = next.join(group, r, f(next.entries, r.Last, a.entriesOf(r.Last)))
		r.First = r.Last + 1
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

// join sets the table to the argument entries: the present entries of the table, followed by the
// entries of the range r. A group is all entries of one range, and the argument group is the index
// of the first entry of the last group. If the last group ends just before r and has the same entries
// as r, join extends that group. The result is the index of the first entry of the new last group.
func (a *authority) join(group int, r countsync.Range, entries []Entry) int {
	last, added := a.entries[group:], entries[len(a.entries):]
	equal := len(last) > 0 && len(last) == len(added) && last[0].Last+1 == r.First
	for i := range added {
		added[i].Range = r
		equal = equal && Entry{last[i].Range, added[i].State, added[i].Member, added[i].Until} == last[i]
	}
	if !equal {
		a.entries = entries
		return len(entries) - len(added)
	}
	for i := range last {
		last[i].Last = r.Last
	}
	return group
}

// cutsOf returns the cuts that separate the given ranges: the last hash of each range, and the last
// hash before each range.
func cutsOf(ranges countsync.Ranges) (cuts []uint64) {
	for _, r := range ranges {
		cuts = append(cuts, r.First-1, r.Last)
	}
	return cuts
}

// restateIn returns the view with a new table. In the given ranges, f appends the new entries of
// each part, given the present entries of the part. Other entries stay.
func (v *View) restateIn(ranges countsync.Ranges, f func(dst, before []Entry) []Entry) *View {
	next := *v
	next.authority = v.restate(cutsOf(ranges), v.Assigned, func(dst []Entry, hash uint64, before []Entry) []Entry {
		if !ranges.Contains(hash) {
			return append(dst, before...)
		}
		return f(dst, before)
	})
	return &next
}

// WithStates returns a copy of the view in which the ranges have only the given entries. Tests use
// WithStates to make views that no transition returns.
func (v *View) WithStates(ranges countsync.Ranges, entries ...Entry) *View {
	return v.restateIn(ranges, func(dst, _ []Entry) []Entry { return append(dst, entries...) })
}

// ReceiveRanges returns the view in which a transfer of ranges to this node has arrived.
func (v *View) ReceiveRanges(ranges countsync.Ranges) *View {
	return v.restateIn(ranges, func(dst, before []Entry) []Entry {
		return pick(append(dst, Entry{State: Held}), before, Transferred)
	})
}

// TransferRanges returns the view after this node has transferred the ranges to the receiver.
func (v *View) TransferRanges(ranges countsync.Ranges, receiver string, now int64) *View {
	return v.restateIn(ranges, func(dst, before []Entry) []Entry {
		dst = append(pick(dst, before, awaitedOrVacant|abandonedOrClaimed), Entry{State: Transferred, Member: receiver, Until: now + int64(Patience)})
		return pick(dst, before, Transferred)
	})
}

// Excess returns the ranges that this node must hand over, because it holds them and the ring assigns them
// to other members.
func (v *View) Excess() countsync.Ranges { return v.held.Minus(v.Assigned) }

// ownedBy returns the hashes that the ring assigns to a member.
func (v *View) ownedBy(member int) countsync.Ranges {
	if member < 0 {
		return nil
	}
	var ranges []countsync.Range
	v.Ring.ArcsOf(v.Members[member].Name, func(first, last uint64) {
		ranges = append(ranges, countsync.Range{First: first, Last: last})
	})
	return countsync.NewRanges(ranges...)
}

// holder returns the member from which this node awaits the range of id, -1 if there is none.
func (v *View) holder(id bucket.ID) int { return v.memberOf(id, Awaited) }

// memberOf returns the Member of the first entry of id that has the state and a known Member, -1 if
// there is none.
func (v *View) memberOf(id bucket.ID, state State) int {
	for _, e := range v.entriesOf(id.Hi) {
		if i, known := v.Named[NameHash(e.Member)]; known && e.State == state {
			return i
		}
	}
	return -1
}

// isAbandoned reports whether no member is known to have authority over id, but a missing member
// may have authority.
func (v *View) isAbandoned(id bucket.ID) bool {
	return v.HasAny(abandonedOrClaimed) && find(v.entriesOf(id.Hi), abandonedOrClaimed).State != 0
}

// Yields reports whether this node announces that it joins, and still holds ranges. Such a node was removed
// from the roster while alive, so other members have authority over these ranges, and the node sends its
// counts to these owners.
func (v *View) Yields() bool { return v.Joins() && len(v.held) > 0 }
