// Package limits has what a node knows of declared limits: a Registry of them, and the windows of
// limits by the calendar. Time is an argument.
package limits

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

const (
	// DeclareEvery is how often a node declares its limits to the next member. It is no part
	// of any other time, so that in virtual time no two messages of a node are of one instant.
	DeclareEvery = 5*time.Second - 7
	// maxNames bounds the names that are remembered. Limits whose names come later are not
	// compared with others.
	maxNames = 4096
	// conflictLines is how many lines about conflicts are logged in conflictPace.
	conflictLines = 10
	conflictPace  = 10 * time.Second
)

// Limit is the part of a weir.Limit that a count is judged by. Scope and Calendar have its
// numbers.
type Limit struct {
	Name      string
	Version   uint64
	Algorithm bucket.Algorithm
	Rate      int64
	Per       time.Duration
	Burst     int64
	Scope     uint8
	Partition wire.Policy
	Calendar  uint8 // 0 for none
	Zone      string
	Varies    bool // other numbers are meant: only the Algorithm is compared. It is not told
}

// conflicts reports whether two limits of one Name have one Version and judge in
// other ways, where neither Varies.
func (l *Limit) conflicts(o *Limit) bool {
	return l.Version == o.Version && !l.Varies && !o.Varies && l.spelled() != o.spelled()
}

// spelled is the limit with its defaults written out, so that two that judge in the
// same way are equal.
func (l *Limit) spelled() Limit {
	s := *l
	if s.Algorithm == bucket.TokenBucket || s.Algorithm == bucket.LeakyBucket {
		s.Burst = cmp.Or(s.Burst, s.Rate)
	}
	if s.Calendar != 0 {
		s.Zone = cmp.Or(s.Zone, "UTC")
	}
	return s
}

// Registry remembers the limits of a node's Limiters. It finds limits that share the counts of keys,
// and judge them differently by mistake. It is safe for concurrent use.
//
// It compares declarations: those of this node as Limiters are made, and those that other members
// send. It knows no counts and no keys, and no check passes it. So a share of a limit in a split, the
// part of a region, the window of a calendar, and the numbers of an older Version are no conflicts.
// These invariants hold:
//
//   - It has the highest Version of each name, and the numbers that came last.
//   - At one Version a name has one Algorithm. Node.Limiter relies on that: a check with another
//     Algorithm would be judged by the first.
//   - It logs a Version of a name once for this node and once for all others, at most conflictLines
//     in conflictPace. Without that, the declarations of members would fill the log.
//   - Names, messages and their texts are bounded, whatever members declare.
type Registry struct {
	log      *slog.Logger
	describe func(Limit) string

	mu        sync.Mutex
	at        map[string]int // place in all
	all       []registered
	conflicts uint64 // times that one was seen
	since     int64  // when the lines began to be counted
	lines     int
	turn      int // of Declare
}

// registered is a limit of this node.
type registered struct {
	Limit
	loggedHere, loggedThere bool
}

// NewRegistry returns a Registry. describe returns the numbers of a limit as the log has them; its
// defaults are written out.
func NewRegistry(log *slog.Logger, describe func(Limit) string) *Registry {
	return &Registry{log: log, describe: describe, at: make(map[string]int)}
}

// Conflicts is how often a conflict was seen.
func (r *Registry) Conflicts() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conflicts
}

// Add registers a limit that is valid. It returns an error if the limit of this Name and
// Version has another Algorithm. Other numbers are counted, and logged.
func (r *Registry) Add(l Limit, now int64) error {
	r.mu.Lock()
	i, known := r.at[l.Name]
	if !known {
		if len(r.all) < maxNames {
			r.at[l.Name] = len(r.all)
			r.all = append(r.all, registered{Limit: l})
		}
		r.mu.Unlock()
		return nil
	}
	held := &r.all[i]
	before, logs := held.Limit, false
	switch {
	case l.Version < held.Version:
	case l.Version > held.Version:
		*held = registered{Limit: l}
	case l.Algorithm != held.Algorithm:
		r.mu.Unlock()
		//lint:ignore ST1005 it follows "weir: invalid", and begins with the name of a field
		return fmt.Errorf("Algorithm of %q is %v, and this node has a limit of that Name with %v at the same Version %d: raise Version to change the Algorithm, or use another Name",
			l.Name, l.Algorithm, before.Algorithm, l.Version)
	case l.Varies:
	default:
		logs = l.conflicts(&before) && r.logs(&held.loggedHere, now)
		held.Limit = l
	}
	r.mu.Unlock()
	if logs {
		r.log.Warn("limits of one name and version have different numbers; raise Version or rename one",
			"limit", l.Name, "version", l.Version, "numbers", r.describe(l.spelled()), "other_numbers", r.describe(before.spelled()))
	}
	return nil
}

// InFlight returns the Rate of a name's limit as it was last added, if that has units in flight.
func (r *Registry) InFlight(name string) (rate int64, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, known := r.at[name]
	if !known || r.all[i].Algorithm != bucket.InFlight {
		return 0, false
	}
	return r.all[i].Rate, true
}

// Compare looks at what a member tells, and returns wire.ErrMalformed if that is nothing.
func (r *Registry) Compare(message []byte, member string, now int64) error {
	limits, err := parseLimits(message)
	for i := range limits {
		r.compare(&limits[i], member, now)
	}
	return err
}

func (r *Registry) compare(theirs *Limit, member string, now int64) {
	r.mu.Lock()
	at, known := r.at[theirs.Name]
	if !known || !r.all[at].conflicts(theirs) {
		r.mu.Unlock()
		return
	}
	held := &r.all[at]
	here, logs := held.Limit, r.logs(&held.loggedThere, now)
	r.mu.Unlock()
	if logs {
		r.log.Warn("limits of one name and version have different numbers; raise Version or rename one",
			"limit", here.Name, "version", here.Version, "numbers", r.describe(here.spelled()), "other_numbers", r.describe(theirs.spelled()), "member", member)
	}
}

// logs counts a conflict. It reports whether that is to be logged now, and if so marks it
// as logged. r.mu is held.
func (r *Registry) logs(logged *bool, now int64) bool {
	r.conflicts++
	if *logged {
		return false
	}
	if now-r.since >= int64(conflictPace) {
		r.since, r.lines = now, 0
	}
	if r.lines == conflictLines {
		return false
	}
	r.lines++
	*logged = true
	return true
}

// Declare tells one more of the members that are heard, in turn, which limits this node has.
// Nobody answers: each compares what it is told.
func (r *Registry) Declare(v *view.View) {
	r.mu.Lock()
	turn := r.turn
	r.turn++
	r.mu.Unlock()
	heard := v.Heard()
	if len(heard) == 0 {
		return
	}
	to := heard[turn%len(heard)]
	for _, message := range r.messages() {
		v.Members[to].Peer.Tell(env.Request(wire.Header{Op: wire.OpDeclare, To: v.Hashes[to]}, message))
	}
}
