// Package countsync keeps the counts of several nodes in agreement: it is the
// stream of states, spends and authority between them. It is pure: what a node's
// store has spent goes in, frames for other members come out, and the frames that
// arrive are taken into the store. Time is an argument, and nothing waits.
//
// The package belongs to the engine of weir: what it exports may change in any release.
// Import weir instead.
//
// # Copies merge
//
// A copy of a count is the cell in the store, which has what is used, and a vector, which
// has a tally for each origin: what that one has spent and refunded, cumulative. An origin
// is a member's incarnation. It alone raises its tally, by every unit that it admits, with
// authority or without. Of two tallies of an origin, one therefore has all that the other
// has, and two vectors have a join: the later tally of each origin.
//
// Two copies merge to one that has the units of both, each once (merge.go). If one
// vector covers the other, that copy has all there is. Otherwise one of them stays, and the
// units that only the other has are spent on top, refunds netted first, and never more than
// the other has in use and both know to be refunded beyond what was spent.
//
// A join does not depend on order, path or repetition, and neither do the units of a merge:
// what is sent twice, late or by two ways counts once. A unit is lost only with all members
// that have heard of it. Which part of the units has recovered is known as a bound, from the
// strict side; it is exact as long as one node at a time spends. A bucket drains in each
// copy by itself: of two that were filled apart, the merge has drained as both have.
//
// A tally is forgotten once all of its units have recovered, as its age shows, or that the
// count was empty since. Another copy may bring it back. It counts nothing then, because
// every copy notes, whenever it hears of the count, which units of its tallies have expired.
// The origin goes on with a new series.
//
// The number of a reset stands before vectors: what comes with a lower one is dropped.
//
// Almost every count has one origin: its store keeps that tally in 4 bytes
// ([bucket.Total]). The ledger has all other vectors, and each tally that the holder or the next
// holder may lack, because a node passes on only the tallies of its ledger.
//
// # Frames
//
// The member that answers for an id, by authority or standing in, sends its copy to the
// id's targets: a state. The frame calls the state of a member without authority a replica, and
// its receiver passes the units on. Any other member that has spent, or heard of, new units sends
// its vector and how much is used to the member that answers: a spend. A spend carries no count,
// which is long for a log. Authority follows the last state.
//
// Each pair of members has frames of its own, numbered, one in flight. What a frame that
// got no answer carried is sent again.
//
// No call does more under the lock for a stream that knows much than for one that
// knows little, but for the rare ones whose comments state it. Everything that has to be
// visited is visited in parts (Review, scans, Collect). What waits, and what is known beside
// counts, is kept in blocks that are never moved (deque). A full table lets go of
// one element for each that comes. The benchmarks of locks measure it.
//
// # What the caller owes
//
//   - Track on the store, and Collect at regular times (50 ms) and when the store
//     hurries. Collect, Review, ReviewPart and Answered return the members for which Next
//     has something. Next is called until it returns nil, and then again
//     after Answered or Lost.
//   - Owe, for each range of hashes that a member becomes a target of, or stands in
//     for, because the view has changed or this node has taken
//     authority; and Owe with nothing, to a member that waits for Complete.
//   - Review, when the view has changed or authority has been taken, and then
//     ReviewPart until that is over, a part at a time with pauses between.
//   - Owe, as this node leaves and holds nothing any more, to each member the ranges that
//     it gets copies of; and Forgo, when that takes too long.
//   - Give, which alone lets authority go; and only to a member for which Lag
//     reports no scan. Authority that is lost otherwise, as this node began
//     apart from others, it yields (Yield).
//   - Sweep, a few times a second.
package countsync
