package worker

import "time"

// Quota is a limit in the words of all contenders: a bucket holds so many units and
// regains one in each interval, and a window grants them in as long as that takes for
// all of them.
type Quota struct {
	Units    int64
	Interval time.Duration
}

// Window returns how long a window of the quota is.
func (q Quota) Window() time.Duration { return time.Duration(q.Units) * q.Interval }

// Outcome is what became of a check, in bits.
type Outcome uint8

const (
	Admitted Outcome = 1 << iota
	Here             // decided with authority, now or before, without asking another process
	Stray            // nobody with authority decided: a stand-in, or a share
	Failed           // an error
)

// Decided is the outcome of a check in the process that has the count.
func Decided(ok bool, err error) Outcome {
	switch {
	case err != nil:
		return Here | Failed
	case ok:
		return Here | Admitted
	}
	return Here
}

// Instance is one limiter of a contender, in one process. Where several processes share a
// count it is a node, and has the fields below Close.
type Instance struct {
	Allow  func(key string) Outcome // one unit
	Close  func() error
	Addr   string // at which the other nodes reach it
	Owns   func(key string) bool
	Meet   func(nodes []string) error // waits until the nodes at these addresses decide together
	Settle func()                     // waits until its counts have their replicas; nil if there are none
}
