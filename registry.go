package weir

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/spelling"
)

const (
	// maxRegistered bounds the names that a node remembers. Limits whose names
	// came later are not compared with others.
	maxRegistered = 4096
	// conflictLines is how many lines about conflicts are logged in conflictPace.
	conflictLines = 10
	conflictPace  = 10 * time.Second
)

// registry remembers of each limit's name the numbers that this node's Limiters
// have, so that two limits which share a count without meaning to are noticed. It
// knows no counts and no keys, and a check does not pass it: what is declared is
// compared, here by Node.Limiter and with other members by what they declare. So a
// share of a limit in a split, a region's part, and a calendar's window are no
// conflicts, nor is what a count was judged by before a Version rose.
//
// Of each name it has the highest Version, and the numbers that came last. A limit
// that Varies is registered for its Algorithm alone.
type registry struct {
	log       *slog.Logger
	conflicts atomic.Uint64 // times that one was seen

	mu    sync.Mutex
	at    map[string]int // place in all
	all   []registered
	since int64 // when the lines began to be counted
	lines int
}

// registered is a limit of this node. Each Version of a name is logged once for
// this node, and once for all others.
type registered struct {
	Limit
	loggedHere, loggedThere bool
}

func newRegistry(log *slog.Logger) *registry {
	return &registry{log: log, at: make(map[string]int)}
}

// add registers a limit that is valid. The error is ErrInvalid if one of its name and
// Version has another Algorithm. Other numbers are counted, and logged.
func (r *registry) add(l Limit, now int64) error {
	r.mu.Lock()
	i, known := r.at[l.Name]
	if !known {
		if len(r.all) < maxRegistered {
			r.at[l.Name] = len(r.all)
			r.all = append(r.all, registered{Limit: l})
		}
		r.mu.Unlock()
		return nil
	}
	held := &r.all[i]
	before, conflict, logs := held.Limit, false, false
	switch {
	case l.Version < held.Version:
	case l.Version > held.Version:
		*held = registered{Limit: l}
	case l.Algorithm != held.Algorithm:
		r.mu.Unlock()
		return fmt.Errorf("%w Limit: Algorithm of %q is %v, and this node has a limit of that Name with %v at the same Version %d: raise Version to change the Algorithm, or use another Name",
			ErrInvalid, l.Name, l.Algorithm, before.Algorithm, l.Version)
	case l.Varies:
	default:
		conflict = l.conflicts(&before)
		logs = conflict && r.logs(&held.loggedHere, now)
		held.Limit = l
	}
	r.mu.Unlock()
	if conflict {
		r.conflicts.Add(1)
	}
	if logs {
		r.log.Warn("two limits of this node have one name and version, and other numbers: they share each key's count, and each judges it by its own. Raise Version when numbers change, use another Name for another limit, or set Varies if it is meant so",
			"limit", l.Name, "version", l.Version, "numbers", l.describe(), "other_numbers", before.describe())
	}
	return nil
}

// compare looks at what a member has declared.
func (r *registry) compare(theirs []Limit, member string, now int64) {
	for i := range theirs {
		t := &theirs[i]
		r.mu.Lock()
		at, known := r.at[t.Name]
		if !known || !r.all[at].conflicts(t) {
			r.mu.Unlock()
			continue
		}
		held := &r.all[at]
		here, logs := held.Limit, r.logs(&held.loggedThere, now)
		r.mu.Unlock()
		r.conflicts.Add(1)
		if logs {
			r.log.Warn("another member has a limit of this name and version with other numbers: they share each key's count, and each check is judged by the numbers of the member that asks, but by the algorithm that came first. Raise Version when numbers change, or use another Name for another limit",
				"limit", t.Name, "version", t.Version, "numbers", here.describe(), "other_numbers", t.describe(), "member", member)
		}
	}
}

// logs reports whether a conflict is to be logged now, and if so marks it as logged.
// r.mu is held.
func (r *registry) logs(logged *bool, now int64) bool {
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

// declared is a copy of the limits that other members are to compare with theirs.
func (r *registry) declared() []Limit {
	r.mu.Lock()
	defer r.mu.Unlock()
	var limits []Limit
	for i := range r.all {
		if !r.all[i].Varies {
			limits = append(limits, r.all[i].Limit)
		}
	}
	return limits
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
	if s.Algorithm == TokenBucket || s.Algorithm == LeakyBucket {
		s.Burst = cmp.Or(s.Burst, s.Rate)
	}
	if s.Calendar != NoCalendar {
		s.Zone = cmp.Or(s.Zone, "UTC")
	}
	return s
}

// describe is what a limit's numbers are in a log.
func (l *Limit) describe() string {
	s := l.spelled()
	text := fmt.Sprintf("%d per %s", s.Rate, spelling.Duration(s.Per))
	if s.Calendar != NoCalendar {
		text = fmt.Sprintf("%d per calendar %v of %s", s.Rate, s.Calendar, s.Zone)
	}
	if s.Burst != 0 {
		text += fmt.Sprintf(", burst %d", s.Burst)
	}
	return text + fmt.Sprintf(", %v, %v, %v", s.Algorithm, s.Scope, s.Partition)
}
