package countsync

import (
	"slices"

	"github.com/weir-go/weir/bucket"
)

// A review looks at what is known of ids beside their counts, tallies and resets, and
// passes on what the answering member has not been sent. It is taken in parts, as a
// sweep is. What a part finds for another member waits as a bare id (outbound.bulk)
// behind all that changes: a change is wanted within 100 ms, and a million tallies take
// seconds.
//
// Each tally and tombstone has stamps of the members that it was queued for as it is
// now. What is queued for a member is sent until it is acknowledged, for as long as the
// member is in the roster, so a stamped one is not queued for it again: not by the next
// review, nor when the member answers again after another did. That rests on three
// rules: a tally loses its stamps when its tallies change; a member whose queue is
// dropped, or that asks for everything, gets a new stamp, which nothing bears; and so
// does a member that leaves the roster and returns. It relies on a member keeping what
// it has acknowledged until that has recovered (ledger says when it does not).

// stamp stands for a member in the time that something is kept to be sent for it, or
// for this node's own targets.
type stamp uint32

const (
	nobody stamp = iota
	home         // this node answers: its targets were sent it with a state
	firstStamp
)

// stamps are of the last two members that something was queued for, the one that answers
// and one that is about to; and the third is home, if it was queued for this node's
// targets. Scans go to all members, and would leave no room for that one.
type stamps [3]stamp

func (s *stamps) has(x stamp) bool { return slices.Contains(s[:], x) }

func (s *stamps) add(x stamp) {
	switch {
	case s.has(x):
	case x == home:
		s[2] = x
	default:
		s[0], s[1] = x, s[0]
	}
}

// review is a place in the order in which tallies and then resets are visited:
// tallies first, as they admit too much until they are known. The zero review is the
// beginning.
type review struct {
	entries int    // of the ledger
	resets  uint64 // of all that were ever made known here
}

// reviewPart is how many ids a part of a review looks at.
const reviewPart = 512

// Review begins to look again at what the answering members have to know, after the view
// has changed or authority has been taken: tallies and resets.
// It takes the first part, and ReviewPart the rest; a review that was under way begins
// again. It returns what ReviewPart does.
func (s *Stream) Review(now int64, roles Roles) (ready []Member, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick(now)
	s.reviewing, s.reviewed = true, review{}
	s.reviewOn(now, roles)
	return s.ready(), !s.reviewing
}

// ReviewPart takes the next part of a review. It returns what Collect does; over reports
// whether that was the last part, or there is none.
func (s *Stream) ReviewPart(now int64, roles Roles) (ready []Member, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.reviewing {
		return nil, true
	}
	s.tick(now)
	s.reviewOn(now, roles)
	return s.ready(), !s.reviewing
}

// reviewOn takes the next part: the call that adds something meanwhile passes it on.
func (s *Stream) reviewOn(now int64, roles Roles) {
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

// reviewOne passes on what is known of an id, unless it was.
func (s *Stream) reviewOne(id bucket.ID, now int64, roles Roles) {
	to, o := s.passee(id, roles)
	switch {
	case to == nobody || s.passed(id, to, now):
	case o == nil:
		s.pass(id, roles)
	default:
		o.bulk.push(id)
		s.setStamp(id, to)
	}
}

// passee is where to send what is known of an id beside its count: to a member, or to
// this node's targets, or nowhere.
func (s *Stream) passee(id bucket.ID, roles Roles) (stamp, *outbound) {
	answers := roles.Answers(id)
	if answers == s.self || roles.Holds(id) {
		return home, nil
	}
	if o := s.outbound(answers); o != nil {
		return o.stamp, o
	}
	return nobody, nil
}

// passed reports whether all that is known of an id beside its count was queued as it
// is now. A tombstone that is not heeded any more is let be.
func (s *Stream) passed(id bucket.ID, to stamp, now int64) bool {
	for i := s.ledger.of(id); i != none; i = s.ledger.at(i).next {
		if !s.ledger.at(i).passed.has(to) {
			return false
		}
	}
	r, ok := s.resets.get(id)
	return !ok || r.passed.has(to) || !r.heeded(now)
}

// setStamp notes that all that is known of an id beside its count was queued.
func (s *Stream) setStamp(id bucket.ID, to stamp) {
	for i := s.ledger.of(id); i != none; i = s.ledger.at(i).next {
		s.ledger.at(i).passed.add(to)
	}
	s.resets.pass(id, to)
}

// newStamp is one that nothing bears.
func (s *Stream) newStamp() stamp {
	if s.stamps++; s.stamps < firstStamp {
		s.stamps = firstStamp
	}
	return s.stamps
}

// beside is what is known of an id beside its count.
type besideKind uint8

const (
	ofNothing besideKind = iota // a place that is not in use
	ofReset
	ofVector // the one of the id's that stands first in the ledger
)

// nextBeside takes a review one step further: to an id of which something is known
// beside its count. It is not ok at the end. An id comes with the tally of its that
// stands first in the ledger, whichever was heard of first: any of them can be forgotten
// between two parts, and what has not been visited by then still comes.
func (s *Stream) nextBeside(at *review) (kind besideKind, id bucket.ID, ok bool) {
	i := at.entries
	if i >= s.ledger.all.len() {
		at.resets = max(at.resets, s.resets.forgotten)
		i := at.resets - s.resets.forgotten
		if i >= uint64(s.resets.order.len()) {
			return ofNothing, id, false
		}
		at.resets++
		return ofReset, s.resets.order.at(int(i)).id, true
	}
	at.entries++
	if s.ledger.at(int32(i)).origin == 0 {
		return ofNothing, id, true
	}
	id = s.ledger.at(int32(i)).id
	for other := s.ledger.of(id); other != none; other = s.ledger.at(other).next {
		if int(other) < i {
			return ofNothing, id, true
		}
	}
	return ofVector, id, true
}
