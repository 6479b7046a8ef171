package worker

import "time"

// Quota is a limit in the words of all contenders: a bucket holds Units, and regains one in each
// Interval.
type Quota struct {
	Units    int64
	Interval time.Duration
}

// Window returns the time in which an empty bucket is full again.
func (q Quota) Window() time.Duration { return time.Duration(q.Units) * q.Interval }

// Outcome is what became of a check, in bits.
type Outcome uint8

const (
	Admitted Outcome = 1 << iota
	Here             // decided with authority, now or before, without asking another process
	Stray            // nobody with authority decided: a stand-in, or a share
	Failed           // an error
)

// Instance is one limiter of a contender, in one process. A limiter whose counts are in processes
// that ask each other is a node, and has the fields below Close.
type Instance struct {
	Allow func(key string) Outcome // one unit
	Close func() error
	Addr  string // at which other nodes reach it
	Owns  func(key string) bool
	Meet  func(nodes []string) error // returns once the nodes at these addresses are one cluster
}
