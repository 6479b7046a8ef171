// Package limits keeps a Registry of the limits that nodes declare, and computes the windows of a
// calendar. Time is an argument.
package limits

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

const (
	// DeclareEvery is the interval at which a node declares its limits to the next neighbor. This
	// interval does not divide any other interval, so that a node does not send two messages at the same
	// instant of virtual time.
	DeclareEvery = 5*time.Second - 7
	// declareRested is the interval once the node has sent the limits to each neighbor, until a limit or a
	// connection changes. These declarations are needed only if an earlier declaration was lost.
	declareRested = time.Minute - 7
	// maxNames is the maximum number of names in a Registry. Once a Registry has this number
	// of names, it does not compare limits with other names.
	maxNames = 4096
	// maxVersions is the maximum number of Versions of a name whose Algorithms a Registry remembers. It
	// remembers the highest Versions.
	maxVersions = 8
	// conflictLines is the maximum number of lines about conflicts in conflictPace.
	conflictLines = 10
	conflictPace  = 10 * time.Second
)

// Registry remembers the limits of a node's Limiters. It finds limits that share the counts of keys,
// and judge the keys differently by mistake. A Registry is safe for concurrent use.
//
// A Registry compares declarations: the declarations of this node when Limiters are created, and the
// declarations that other members send. It knows no counts and no keys, and is not used by checks. So
// a share of a limit in a split, the part of a region, the window of a calendar, and the numbers of
// an older Version are no conflicts. These invariants hold:
//
//   - A Registry has the highest Version of each name, and the numbers that were added last at this
//     Version. A limit that Varies does not replace the numbers of its own Version.
//   - All limits with the same name and Version have the same Algorithm, for the maxVersions highest
//     Versions of each name. Node.Limiter relies on that: a check with another Algorithm would be
//     judged by the first.
//   - Conflicts of a name and Version are logged at most once for this node and once for all other
//     nodes, with at most conflictLines in conflictPace. Otherwise the declarations of members would
//     fill the log.
//   - Names, messages and their texts are bounded, whatever members declare.
type Registry struct {
	log     *slog.Logger
	changed chan struct{} // signalled by Stir

	mu        sync.Mutex
	at        map[string]int // index in all by name
	all       []registered
	conflicts uint64 // found so far
	since     int64  // start of the period in which lines counts
	lines     int    // number of lines about conflicts since then, at most conflictLines
	turn      int    // number of calls of Declare
	fresh     int    // number of calls of Declare since the last change
	rests     bool   // the limits were sent to each neighbor since the last change
}

// registered is a limit of this node.
type registered struct {
	Limit
	algorithms              []versionAlgorithm // algorithms of Limit and of its lower Versions, sorted by Version
	loggedHere, loggedThere bool
}

type versionAlgorithm struct {
	version   uint64
	algorithm bucket.Algorithm
}

// recordAlgorithm records the Algorithm of a Version. It returns the Algorithm that was recorded first.
func (r *registered) recordAlgorithm(l *Limit) (first bucket.Algorithm) {
	i, known := slices.BinarySearchFunc(r.algorithms, l.Version, func(a versionAlgorithm, version uint64) int { return cmp.Compare(a.version, version) })
	if known {
		return r.algorithms[i].algorithm
	}
	r.algorithms = slices.Insert(r.algorithms, i, versionAlgorithm{l.Version, l.Algorithm})
	r.algorithms = r.algorithms[max(0, len(r.algorithms)-maxVersions):]
	return l.Algorithm
}

// NewRegistry returns a Registry that logs conflicts.
func NewRegistry(log *slog.Logger) *Registry {
	return &Registry{log: log, at: make(map[string]int), changed: make(chan struct{}, 1)}
}

// Conflicts returns the number of conflicts found so far.
func (r *Registry) Conflicts() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conflicts
}

// Add adds a valid limit. The error is that the limit with the same Name and Version has a
// different Algorithm. If the two limits conflict in other fields, Add counts the conflict, and logs
// it at most once.
func (r *Registry) Add(l Limit, now int64) error {
	r.mu.Lock()
	i, known := r.at[l.Name]
	if !known {
		if len(r.all) < maxNames {
			r.at[l.Name] = len(r.all)
			r.all = append(r.all, registered{Limit: l})
			r.all[len(r.all)-1].recordAlgorithm(&l)
		}
		r.mu.Unlock()
		r.Stir()
		return nil
	}
	held := &r.all[i]
	if first := held.recordAlgorithm(&l); first != l.Algorithm {
		r.mu.Unlock()
		//lint:ignore ST1005 it follows "weir: invalid", and begins with the name of a field
		return fmt.Errorf("Algorithm of %q is %v, and this node has a limit of that Name with %v at the same Version %d: raise Version to change the Algorithm, or use another Name",
			l.Name, l.Algorithm, first, l.Version)
	}
	before, logs := held.Limit, false
	switch {
	case l.Version < held.Version:
	case l.Version > held.Version:
		*held = registered{Limit: l, algorithms: held.algorithms}
	case l.Varies:
	default:
		logs = l.conflicts(&before) && r.logs(&held.loggedHere, now)
		held.Limit = l
	}
	differs := before != r.all[i].Limit
	r.mu.Unlock()
	if differs {
		r.Stir()
	}
	if logs {
		r.log.Warn("limits of one name and version have different numbers; raise Version or rename one",
			"limit", l.Name, "version", l.Version, "numbers", l.describe(), "other_numbers", before.describe())
	}
	return nil
}

// InFlight returns the Rate of the limit of a name with the highest Version, if its Algorithm is
// InFlight.
func (r *Registry) InFlight(name string) (rate int64, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, known := r.at[name]
	if !known || r.all[i].Algorithm != bucket.InFlight {
		return 0, false
	}
	return r.all[i].Rate, true
}

// Compare compares the limits in a message of a member with those of this node. The error is
// wire.ErrMalformed if the message is malformed.
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
			"limit", here.Name, "version", here.Version, "numbers", here.describe(), "other_numbers", theirs.describe(), "member", member)
	}
}

// logs counts a conflict, and reports whether the caller should log it now. If so, logs sets logged, so that
// the conflict is not logged again. The caller must hold r.mu.
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

// Stir signals Changed, because the limits or the neighbors may have changed, and does not block.
func (r *Registry) Stir() { env.Signal(r.changed) }

// Changed returns the channel that Stir signals. The caller then calls Hurry.
func (r *Registry) Changed() <-chan struct{} { return r.changed }

// Hurry restarts the declarations: Declare sends the limits to each neighbor again. The result is the time
// until the next call of Declare, or 0 if that time does not change.
func (r *Registry) Hurry() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fresh = 0; !r.rests {
		return 0
	}
	r.rests = false
	return DeclareEvery
}

// Declare sends the limits of this node to the next of its neighbors. The member compares them
// with its own limits, and sends no answer. Declare returns the time until the next call.
func (r *Registry) Declare(v *view.View) (next time.Duration) {
	heard := v.Neighbors()
	r.mu.Lock()
	turn := r.turn
	r.turn++
	r.fresh++
	next, r.rests = DeclareEvery, r.fresh >= len(heard)
	if r.rests {
		next = declareRested
	}
	r.mu.Unlock()
	if len(heard) == 0 {
		return next
	}
	to := heard[turn%len(heard)]
	for _, message := range r.messages() {
		v.Members[to].Peer.Send(env.Request(wire.Header{Op: wire.OpDeclare, To: v.Hashes[to]}, message))
	}
	return next
}
