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
// A copy of a count is what is used of an id, the cell in the store, and of whom: a
// vector, which has a tally for each origin, cumulative, of what that one has spent and
// refunded. An origin is a member's incarnation; it alone raises its tally, by every
// unit that it admits, with authority or without. Of two tallies of an origin, one has
// therefore all that the other has, and so two vectors have a join: the later tally of
// each origin.
//
// Two copies merge to one that has the units of both, each once (merge.go). If one
// vector covers the other, that copy has all there is. Else one of them stays, and what
// the other has beyond it is spent on top, refunds netted first, and never more than the
// other has in use and both know to be refunded beyond what was spent. As a join does
// not depend on order, path or repetition, neither does of whom the units are: whatever
// is sent twice, late or by two ways counts once, and a unit is lost only with all who
// had heard of it. Which part of the units has recovered is known as a bound, from the
// strict side; it is exact as long as one node at a time spends. A bucket drains in each
// copy by itself: of two that were filled apart, the merge has drained as both have.
//
// A tally is forgotten when all that it says has recovered, as its age shows or that the
// count was empty since, and counts nothing when another copy brings it back: that one
// notes, whenever it hears of the count, what of its tallies is not in use any more (expired).
// Its origin goes on with a new series. The
// number of a reset stands before vectors: what comes with a lower one is dropped.
//
// Almost every count has one origin: its store keeps that tally in 4 bytes
// ([bucket.Total]). The ledger has all other vectors.
//
// # Frames
//
// Who answers for an id, by authority or standing in, sends its copy to those who are to
// have it: a state. Who does not, and has spent or heard something, sends its vector to
// whoever answers, with how much is used: a spend. That needs no count, which of a log
// is long. Authority follows the last state.
//
// Each pair of members has frames of its own, numbered, one in flight. What a frame that
// got no answer carried is sent again.
//
// No call does more under the lock for a stream that knows much than for one that
// knows little, but for the rare ones that say so: what there is to look at is visited
// in parts (Review, scans, Collect), what waits and what is known beside
// counts is kept in blocks that are never moved (deque), and what is full lets go of
// one element for each that comes. The benchmarks of locks measure it.
//
// # What the caller owes
//
//   - Track on the store, and Collect at regular times (50 ms) and when the store
//     hurries: what Collect, Review, ReviewPart and Answered return names those for
//     whom Next has something. Next is called until it returns nil, and then again
//     after Answered or Lost.
//   - Owe, for each range of hashes that a member comes to be a target of, or to
//     stand in for, be it that the view has changed or that this node has taken
//     authority; and Owe with nothing, to a member that waits for Complete.
//   - Review, when the view has changed or authority has been taken, and then
//     ReviewPart until that is over, a part at a time with pauses between.
//   - Owe, as this node leaves and holds nothing any more, to each member the ranges that
//     it comes to have copies of; and Forgo, when that takes too long.
//   - Give, and let authority go in no other way; and only to a member that Lag
//     says no scan is under way for. What is lost otherwise, as this node had begun
//     apart from others, it yields (Yield).
//   - Sweep, a few times a second.
package countsync
