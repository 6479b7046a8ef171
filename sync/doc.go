// Package countsync keeps the counts of several nodes in agreement: it is the
// stream of states, spends and authority between them. It is pure: what a node's
// store has spent goes in, frames for other members come out, and the frames that
// arrive are taken into the store. Time is an argument, and nothing waits.
//
// A node that has authority over an id sends the id's count, absolute, to those
// who are to have it: a state. What others spend meanwhile is a tally of theirs,
// cumulative, so that it counts once however often and by whatever way it comes:
// it is sent, as a spend, to whoever answers for the id, and it goes along with
// each state that includes it. So states and spends commute. Authority follows
// the last state.
//
// Who has no authority sends states too: a stand-in to its own targets, and to a
// stand-in everyone who has a copy, since it may have been cut off from the owner,
// and another not. Such a state never takes the place of a later copy: of two, that
// is the one of which more is in no tally. The other's tallies are taken into it.
//
// Each pair of members has frames of its own, numbered, one in flight. A frame is
// applied once or never: when its answer is lost, the next one asks what became of
// it, and the one who is asked sees to it that this stays so.
//
// No call does more under the lock for a stream that knows much than for one that
// knows little, but for the rare ones that say so: what there is to look at is gone
// through in parts (Review, scans, Collect), what waits and what is known beside
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
//   - Give, and let authority go in no other way; and only to a member that Lag
//     says no scan is under way for. A node that holds an id which another holds
//     too, as both have started apart, or this one was taken off the roster while
//     it lived, gives it to that one: neither gives it to a third, which would
//     take both counts for the whole.
//   - Sweep, a few times a second.
package countsync
