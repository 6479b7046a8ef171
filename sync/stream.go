package countsync

import (
	"time"

	"github.com/weir-go/weir/bucket"
)

// Member names a member: the hash of its name, which differs at every start.
// 0 is nobody.
type Member = uint64

// Roles says who is what for an id, as the node's view has it now.
type Roles interface {
	// Holds says whether this node has authority over id.
	Holds(id bucket.ID) bool
	// Answers is who answers for id now: the authority or its stand-in, this
	// node itself if that is it, 0 if nobody is reached.
	Answers(id bucket.ID) Member
	// Targets appends who is to have id's state from this node, which holds id
	// or stands in for it: successors, joiners, the next owner. Never itself.
	Targets(dst []Member, id bucket.ID) []Member
}

// Stream is one node's side of the stream. It is safe for concurrent use.
type Stream struct {
	self  Member
	store *bucket.Store
}

// Arrival is what came with a frame beside counts.
type Arrival struct {
	From     Member
	Given    Ranges // authority that came with the frame; nil if none, or if that move came before
	Complete bool   // all that From owed by its scans has come
	Leaving  bool   // From hands over what it holds
}

// Lag is how much waits for a member.
type Lag struct {
	Counts   int           // ids that it has not acknowledged
	Age      time.Duration // of the oldest of them
	Scanning bool          // a scan is under way, or queued
}

func New(self Member, store *bucket.Store) *Stream { return &Stream{self: self, store: store} }

func (s *Stream) Meet(members []Member)                                             {}
func (s *Stream) Collect(now int64, hurried bool, roles Roles) []Member             { return nil }
func (s *Stream) Owe(to Member, ranges Ranges)                                      {}
func (s *Stream) Review(now int64, roles Roles) []Member                            { return nil }
func (s *Stream) Give(to Member, move uint64, ranges Ranges)                        {}
func (s *Stream) Supersede(now int64)                                               {}
func (s *Stream) Leaving()                                                          {}
func (s *Stream) Lost(to Member)                                                    {}
func (s *Stream) Idle(to Member) bool                                               { return true }
func (s *Stream) Lag(to Member, now int64) Lag                                      { return Lag{} }
func (s *Stream) Reset(id bucket.ID, now int64) (number uint64)                     { return 0 }
func (s *Stream) ResetTo(id bucket.ID, number uint64, age time.Duration, now int64) {}
func (s *Stream) Sweep(now int64)                                                   {}
func (s *Stream) Tallies() int                                                      { return 0 }

func (s *Stream) Next(to Member, now int64, roles Roles, b []byte, max int) []byte { return nil }

func (s *Stream) Answered(to Member, now int64, answer []byte, roles Roles) (more []Member, err error) {
	return nil, nil
}

func (s *Stream) Serve(now int64, frame []byte, roles Roles, dst []byte) (answer []byte, a Arrival, err error) {
	return dst, Arrival{}, nil
}

// Sender is who sent a frame; false if it is none.
func Sender(frame []byte) (Member, bool) { return 0, false }
