// Package countsync keeps the counts of several nodes in agreement. The nodes send each other a
// stream of states, spends and authority. The package is pure: its inputs are the changes of a
// node's store and the frames of other members. It merges the frames into the store, and returns
// frames for other members. Time is an argument, and no call waits for an event.
//
// The package is part of the engine of weir, and its API may change in any release.
// Import weir instead.
//
// # Copies merge
//
// A copy of a count consists of the cell in the store, which has the used units, and a vector.
// The vector has a tally for each origin: the cumulative numbers of units that the origin has
// spent and refunded. An origin is an incarnation of a member. Only the origin raises its tally,
// by every unit that it admits, with or without authority. If an origin has two tallies, the
// later tally therefore includes everything that the earlier tally has. The join of two vectors
// has the later tally of each origin.
//
// The merge of two copies contains the units of both copies, and each unit once (merge.go). If
// one vector covers the other, the result is the copy with that vector. Otherwise one copy stays,
// and the units that only the other copy has, less refunds, are spent on top. There is an upper
// bound for these units: the used units of the other copy, plus the number of units by which the
// refunds that both vectors have exceed the spent units that both vectors have.
//
// A join does not depend on order, path or repetition, and neither do the units of a merge: a unit
// that is sent twice, late or by two paths counts once. Unless a store or a table is full, a unit
// is lost only if all members that have heard of it are lost. The number of recovered units is a
// lower bound, which is exact as long as one node at a time spends. Buckets are an exception, because
// each copy of a bucket drains on its own: if two copies were filled separately, their merge has
// drained by as much as both.
//
// A tally is forgotten once all of its units have recovered. This is known from its age, or
// because the count is empty. Another copy may bring the tally back, but its units
// then do not count: whenever a node hears of a count, it records which units in its tallies have
// expired. The origin continues above the forgotten tally. If the forgotten tally has refunds, the
// origin begins a new series.
//
// The number of a reset takes precedence over vectors: as long as the reset is in effect, a state
// or spend with a lower number is dropped.
//
// Almost all counts have a single origin, and the store keeps this tally in 4 bytes
// ([bucket.Total]). The ledger has all other vectors. It also has each tally that the holder or
// the next holder may lack, because a node passes on only the tallies of its ledger. The holder
// of an id is the member with authority over it.
//
// # Frames
//
// A member answers for an id if it has authority over it or is the stand-in. It sends its copy to
// the targets of the id, as a state. In a frame, the state of a member without authority is marked
// as a replica, and a receiver without authority passes on the units of the replica. Any other
// member that has spent units, or has heard of new units, sends its vector and the number of used
// units to the answering member, as a spend. A spend does not contain the count, which is long for
// a log. A transfer of authority is sent after the last state.
//
// The frames from one member to another are numbered, and one is in flight at a time. The
// contents of a frame without an answer are sent again.
//
// The work of a call under the lock does not grow with the amount of data in the stream. The
// comments of the few exceptions state it. Reviews, scans and Collect visit the data in parts.
// Queues, tallies and resets are kept in blocks that are never moved (deque). A full table
// removes a few old elements for each new one.
//
// # What the caller owes
//
//   - Call Track on the store. Call Collect at regular intervals (50 ms), and when the store
//     signals hurry. Collect, CollectPart, Replicate, Review, ReviewPart, Loaded and Answered return
//     the members for which Next has a frame. Call Next until it returns nil, and again after
//     Answered or Lost.
//   - Call Owe for each range of hashes of which a member becomes a target or the stand-in,
//     because the view has changed or this node has taken authority. Call Owe without ranges for
//     a member that waits for Complete.
//   - Call Review when the view has changed or this node has taken authority. Then call
//     ReviewPart until the review is over, with pauses between the parts.
//   - When this node leaves and has no authority any more, call Owe for each member with the
//     ranges of which it gets copies. Call Forgo if that takes too long.
//   - Call Transfer to give up authority, and only if Lag reports no scan for the receiver. If
//     this node loses authority in another way, because it began separately from other members,
//     call Yield.
//   - Call Sweep about 20 times a second. sweepParts calls must take less than rememberedFor.
package countsync
