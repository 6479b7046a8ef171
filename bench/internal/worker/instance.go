package worker

import "time"

// Quota is a limit in terms that all contenders support: a bucket holds Units, and
// regains one unit in each Interval.
type Quota struct {
	Units    int64
	Interval time.Duration
}

// Window returns the time in which an empty bucket fills.
func (q Quota) Window() time.Duration { return time.Duration(q.Units) * q.Interval }

// Outcome is the outcome of a check, in bits.
type Outcome uint8

const (
	Admitted Outcome = 1 << iota
	Here             // decided with authority, now or before, without a request to another process
	Stray            // decided without authority: by a stand-in, or from a share
	Failed           // an error
)

// Instance is a limiter of a contender in one process. The instance of a contender in Redis
// has no fields after Releases, and that of echo has no Owns.
type Instance struct {
	Allow    func(key string) Outcome // checks one unit
	Close    func() error
	Releases bool   // Allow releases each unit at once, so every check is allowed
	Addr     string // address for other nodes
	Owns     func(key string) bool
	Meet     func(nodes []string) error // waits until the nodes at these addresses have formed one cluster
}
