package countsync

import (
	"slices"

	"github.com/weir-go/weir/bucket"
)

// A review visits the tallies and resets, which the stream keeps in addition to the counts. A review
// passes on the tallies and resets that were not sent to the answering member before. Like a sweep, a
// review is done in parts. If a part finds an id for another member, the id waits without data
// (outbound.bulk) behind all changes: a change must arrive within 100 ms, and a million tallies take
// seconds.
//
// Each tally and tombstone has the stamps of the members for which its present state was queued,
// or from which it came. Data that is queued for a member is sent until it is acknowledged, as
// long as the member is in the roster. A tally with the stamp of a member is therefore not queued
// again for that member: neither by the next review, nor if another member answered in the
// meantime. This relies on three rules. A tally loses its stamps when it grows, but keeps them when
// only more of its units expire. A member gets a new stamp, which no tally has, if there was no room
// in its queue or if it requests all counts. A member that leaves the roster and returns also gets a
// new stamp. Reviews rely on each member to keep acknowledged data until the data has recovered
// (ledger describes the exception).

// stamp stands for a member while data is kept to be sent to it, or for the targets of this node.
type stamp uint32

const (
	noStamp stamp = iota
	home          // this node answers: the data was sent to its targets, with a state
	firstStamp
)

// stamps has the stamps of the last two members for which data was queued or from which it came:
// usually the member that answers, and a member that is about to answer. The third element is
// home, if the data was queued for the targets of this node. Scans send to all members, and would
// replace home if it had no element of its own.
type stamps [3]stamp

func (s *stamps) contains(x stamp) bool { return slices.Contains(s[:], x) }

func (s *stamps) add(x stamp) {
	switch {
	case s.contains(x):
	case x == home:
		s[2] = x
	default:
		s[0], s[1] = x, s[0]
	}
}

// review is a position in the order in which first tallies and then resets are visited. Tallies
// come first, because too many units are admitted until the answering member knows the tallies. The
// zero review is the beginning.
type review struct {
	entries int    // number of visited entries of the ledger
	resets  uint64 // number of elements of resets.order before this position, including forgotten elements
}

// reviewPart is the number of places that a part of a review visits.
const reviewPart = 512

// Review starts a review after the view has changed or this node has taken authority. Review
// passes on tallies and resets to the members that answer for them now. Review does the first
// part, and ReviewPart does the other parts. A review that is in progress starts again. Review
// returns the same results as ReviewPart.
func (s *Stream) Review(now int64, roles Roles) (ready []Member, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick(now)
	s.reviewing, s.reviewed = true, review{}
	s.continueReview(now, roles)
	return s.ready(), !s.reviewing
}

// ReviewPart does the next part of a review. ReviewPart returns the same members as Collect. The result done
// is true after the last part, and if there is no review.
func (s *Stream) ReviewPart(now int64, roles Roles) (ready []Member, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.reviewing {
		return nil, true
	}
	s.tick(now)
	s.continueReview(now, roles)
	return s.ready(), !s.reviewing
}

// continueReview does the next part. A tally or reset that is added during the review is passed
// on by the call that adds it.
func (s *Stream) continueReview(now int64, roles Roles) {
	left := reviewPart
	for ; s.reviewing && left > 0; left-- {
		kind, id, ok := s.nextBeside(&s.reviewed)
		switch {
		case !ok:
			s.reviewing = false
		case kind != ofNothing:
			s.reviewOne(id, now, roles)
		}
	}
}

// reviewOne passes on the tallies and the reset of id, unless that was done before.
func (s *Stream) reviewOne(id bucket.ID, now int64, roles Roles) {
	to, o := s.receiver(id, roles)
	switch {
	case to == noStamp || s.isPassed(id, to, now):
	case o == nil:
		s.passOn(id, roles)
	default:
		o.bulk.push(id)
		s.setStamp(id, to)
	}
}

// receiver returns the receiver of the tallies and the reset of id, as a stamp: a member, the
// targets of this node (home), or no receiver (noStamp). The outbound is nil if the receiver
// is not a member.
func (s *Stream) receiver(id bucket.ID, roles Roles) (stamp, *outbound) {
	answers := roles.Answers(id)
	if answers == s.self || roles.Holds(id) {
		return home, nil
	}
	if o := s.outbound(answers); o != nil {
		return o.stamp, o
	}
	return noStamp, nil
}

// isPassed reports whether the present tallies and reset of id were all queued for a receiver. A
// tombstone that is no longer in effect is ignored.
func (s *Stream) isPassed(id bucket.ID, receiver stamp, now int64) bool {
	for i := s.ledger.firstEntry(id); i != noEntry; i = s.ledger.entry(i).next {
		if !s.ledger.entry(i).passed.contains(receiver) {
			return false
		}
	}
	r, ok := s.resets.get(id)
	return !ok || r.passed.contains(receiver) || !r.isEffective(now)
}

// setStamp records that the tallies and the reset of id were queued for a receiver.
func (s *Stream) setStamp(id bucket.ID, receiver stamp) {
	for i := s.ledger.firstEntry(id); i != noEntry; i = s.ledger.entry(i).next {
		s.ledger.entry(i).passed.add(receiver)
	}
	s.resets.pass(id, receiver)
}

// newStamp returns a stamp that no tally or reset has.
func (s *Stream) newStamp() stamp {
	if s.stamps++; s.stamps < firstStamp {
		s.stamps = firstStamp
	}
	return s.stamps
}

// besideKind is the kind of data that the stream has about an id in addition to the count.
type besideKind uint8

const (
	ofNothing besideKind = iota // a free place, or a second tally of an id
	ofReset
	ofVector // first tally of the id in the ledger
)

// nextBeside moves a review to the next place, and returns its id if there is a tally or reset.
// ok is false at the end. An id is returned at the place of its first tally in the ledger,
// whichever tally arrived first. Any tally can be forgotten between two parts, and an id that has
// not been visited by then is still returned.
func (s *Stream) nextBeside(position *review) (kind besideKind, id bucket.ID, ok bool) {
	i := position.entries
	if i >= s.ledger.all.len() {
		position.resets = max(position.resets, s.resets.forgotten)
		i := position.resets - s.resets.forgotten
		if i >= uint64(s.resets.order.len()) {
			return ofNothing, id, false
		}
		position.resets++
		return ofReset, s.resets.order.element(int(i)).id, true
	}
	position.entries++
	if s.ledger.entry(int32(i)).origin == 0 {
		return ofNothing, id, true
	}
	id = s.ledger.entry(int32(i)).id
	for other := s.ledger.firstEntry(id); other != noEntry; other = s.ledger.entry(other).next {
		if int(other) < i {
			return ofNothing, id, true
		}
	}
	return ofVector, id, true
}
