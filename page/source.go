package page

import (
	"context"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/admin"
)

// Source provides the data for a Page. Its methods are called only while there are viewers, and
// may be called concurrently. All of them except Watch are called once for all viewers.
type Source interface {
	// Snapshot is called once a second, and must not block.
	Snapshot() Snapshot
	// Top returns the keys with the most requests, the most denials and the most holds. Top is
	// called every five seconds, with a timeout of four seconds. After an error, the page keeps the
	// last keys.
	Top(ctx context.Context) (weir.TopKeys, error)
	// Watch returns the use of a limit by a key, and spends nothing. Watch is called about once a
	// second for each viewer that watches a key, with a timeout of a second. The page shows
	// the error unchanged.
	Watch(ctx context.Context, limit, key string) (Watched, error)
}

// Gatherer is a Source that asks all members for their counters, so that the page shows the
// checks of the whole cluster.
type Gatherer interface {
	Source
	// Gather is called once a second, before Snapshot, and less often if there are more than about 150
	// members. The timeout is less than a second. Gather returns the counters of each member, and
	// the names of members that did not answer. The page shows an error unchanged, with the
	// counters of the Snapshot.
	Gather(ctx context.Context) (all []Counters, missing []string, err error)
}

// Actor is a Source with buttons for actions on members. Every viewer of the page may use them.
type Actor interface {
	Source
	// Act executes an Action of a member, with a timeout of five seconds. The page
	// shows the error unchanged.
	Act(ctx context.Context, member, action string) error
}

// Snapshot is the state of a Source at a moment.
type Snapshot struct {
	Name     string // name of the node, or of the whole cluster
	Region   string // empty if there are no regions
	Members  []Member
	Counters []Counters        // counters of the Source; if Gather has returned counters, the page uses only the Latency of these
	Outage   weir.OutageStats  // the page does not show the Count
	Past     []weir.PastOutage // newest first
	Limits   []string          // names of the limits whose keys can be watched
	Secret   []string          // the names in Limits for which the keys are credentials
	Modes    map[string]string // texts of the modes of rules that are not enforced for all keys, by limit
	Rules    *Rules            // nil if there are no rules
}

// Rules describes the rules in force.
type Rules struct {
	admin.Rules          // the rules without Outcomes and Factors, which are long lists
	Switched    []string `json:"switched"` // the switches: each with its rule, mode, author, end and reason, as text
	Bans        string   `json:"bans"`     // number of bans and of denied requests of this node, as text; empty without any
	Adapted     []string `json:"adapted"`  // at most 20 rules whose factor has changed, as text
	Changes     []string `json:"changes"`  // the last changes of factors, as text, newest first
	Hot         []string `json:"hot"`      // suggestions for hot keys, as text
	Error       string   `json:"error"`    // the reason why the present text of the source was refused, or could not be read; empty if there is none
}

// Member is a member of the cluster.
type Member struct {
	ID      string   `json:"id"`   // unique among the members. Act receives the ID, so a member of an Actor must keep its ID after a restart
	Name    string   `json:"name"` // displayed name
	Addr    string   `json:"addr"`
	Region  string   `json:"region"`
	Self    bool     `json:"self"`   // whether the member is the node of the Source
	State   string   `json:"state"`  // 1 or 2 words
	Health  Health   `json:"health"` // effect of the state on the keys of the member
	Share   float64  `json:"share"`  // part of all keys that the ring assigns to the member, 0 to 1
	Side    int      `json:"side"`   // the same number for members that are connected to each other; 0 for all if all are connected
	Note    string   `json:"note"`   // further information; may be empty
	Actions []Action `json:"actions,omitempty"`

	// Process is the Process of the Counters of the member, and is empty without Counters.
	Process string `json:"-"`
}

// Health is the effect of the state of a member on the keys that it owns.
type Health string

const (
	Serving  Health = "serving"  // the member decides
	Changing Health = "changing" // the member joins or leaves: other members decide for it
	Missing  Health = "missing"  // the member is lost: other members stand in for it
)

// Action is a button. Each button of a member keeps its position: while the opposite of an action is
// possible instead, the opposite has the position of the action.
type Action struct {
	Name string `json:"name"` // a verb, such as "kill"; the argument of Act
	Off  bool   `json:"off"`  // whether the action is impossible at present
}

// Counters are the counters of a process since its start. They only grow. The page shows their
// rates.
type Counters struct {
	Process   string // identifies the process; different after a restart
	Decisions map[weir.Source]weir.Outcomes
	Latency   map[weir.Source]weir.Latency
	Limits    map[string]weir.LimitTotals // keyed by the names of limits
}

// Watched is the use of a limit by a key.
type Watched struct {
	Limit int64 // units that the limit grants
	Used  int64 // units used, as reported by the node that decided
	// InFlight reports whether Used is held units, which are available again after their
	// release. Reset has no meaning in this case.
	InFlight bool
	Per      time.Duration // Per of the limit; 0 if unknown
	Owner    string        // the member that owns the key; empty if unknown
	Source   string        // name of the weir.Source of a check now
	Free     time.Duration // time until a unit is free; 0 if a unit is free now
	Reset    time.Duration // time until the whole limit is available without further checks
	// Counted is the number of units that all clients together were granted within the last Per,
	// or negative if unknown. During a partition Counted can be above Used.
	Counted int64
}
