package page

import (
	"context"
	"time"

	"github.com/weir-go/weir"
)

// Source is what a page shows. Its methods are called only while somebody looks, for all
// viewers together but for Watch, and may be called at the same time.
type Source interface {
	// Snapshot is called once a second, and returns at once.
	Snapshot() Snapshot
	// Top returns the keys asked for, denied and held most. It is called every five seconds,
	// with four seconds for it. After an error the last keys stay on the page.
	Top(ctx context.Context) (weir.TopKeys, error)
	// Watch looks at one key and spends nothing. It is called once a second for each
	// viewer who has chosen a key, with a second for it. The error is shown as it is.
	Watch(ctx context.Context, limit, key string) (Watched, error)
}

// Gatherer is a Source that asks all members for their counters, so that its page shows
// the checks of the whole cluster.
type Gatherer interface {
	Source
	// Gather is called once a second, before Snapshot, with a second for it, and less often if there
	// are more than 100 members. It returns what
	// each member has counted, and the names of members that did not answer. An error is
	// shown as it is, with the counters of the Snapshot.
	Gather(ctx context.Context) (all []Counters, missing []string, err error)
}

// Actor is a Source whose members can be acted on, by buttons. A viewer that may open its
// page may press them.
type Actor interface {
	Source
	// Act does what one of the Actions of a member says, with five seconds for it. The
	// error is shown as it is.
	Act(ctx context.Context, member, action string) error
}

// Snapshot is what a Source knows at one moment.
type Snapshot struct {
	Name     string // of what is shown: a node, or a whole cluster
	Region   string // empty if there are none
	Members  []Member
	Counters []Counters        // of a Gatherer, those whose Latency is shown
	Outage   weir.OutageStats  // whose Count is not shown
	Past     []weir.PastOutage // the newest first
	Limits   []string          // names of the limits whose keys can be watched
	Secret   []string          // of these, those whose keys are credentials
	Shadows  []string          // names of limits that deny nothing, as their rules are shadows
	Rules    *Rules            // nil if there are none
}

// Rules describes the rules in force.
type Rules struct {
	Version   uint64    `json:"version"`
	Hash      string    `json:"hash"` // of the text, its first digits
	LoadedAt  time.Time `json:"loaded_at"`
	Rules     int       `json:"rules"`
	Limits    int       `json:"limits"`
	Overrides int       `json:"overrides"`
	Error     string    `json:"error"` // why the file as it is now is not in force; empty if it is
}

// Member is one member of the cluster.
type Member struct {
	ID      string   `json:"id"`   // stays when it starts again; what Act is given
	Name    string   `json:"name"` // what people call it
	Addr    string   `json:"addr"`
	Region  string   `json:"region"`
	Self    bool     `json:"self"`   // whether it is the node that tells all this
	State   string   `json:"state"`  // in a word or two
	Health  Health   `json:"health"` // what the state means for its keys
	Share   float64  `json:"share"`  // of all keys that the ring gives to it, 0 to 1
	Side    int      `json:"side"`   // members that hear each other have the same; 0 if all that are there do
	Note    string   `json:"note"`   // what else is worth knowing, empty if nothing is
	Actions []Action `json:"actions,omitempty"`

	// Process is that of its Counters, empty if there are none.
	Process string `json:"-"`
}

// Health is what a member's state means for the keys that it owns.
type Health string

const (
	Serving  Health = "serving"  // it decides
	Changing Health = "changing" // it joins or leaves: others decide for it, and nothing is wrong
	Missing  Health = "missing"  // others stand in for it
)

// Action is a button. Its place among a member's is the same at all times, so that what
// undoes an action has the place of the action.
type Action struct {
	Name string `json:"name"` // a verb, such as "kill"; what Act is given
	Off  bool   `json:"off"`  // not possible now
}

// Counters is what one process has counted since its start: they only grow. The page
// shows how they change.
type Counters struct {
	Process   string // another one at each start
	Decisions map[weir.Source]weir.Outcomes
	Latency   map[weir.Source]weir.Latency
	Limits    map[string]weir.LimitTotals // by the names of limits
}

// Watched is how much of its limit a key has used.
type Watched struct {
	Limit int64 // what the limit grants
	Used  int64 // of it, by the word of the node that decided
	// InFlight reports whether Used is held, and comes back as it is released: Reset is 0.
	InFlight bool
	Per      time.Duration // the limit's; 0 if it is not known
	Owner    string        // the member that owns the key; empty if it is not known
	Source   string        // where a check of the key is decided now, as weir.Source spells it
	Free     time.Duration // until a unit is free; 0 if one is
	Reset    time.Duration // until the whole limit is there again, if nothing more is asked
	// Counted is what all clients together were granted within the last Per, where
	// somebody counts it; below 0 if nobody does. In a split it can be above Used.
	Counted int64
}
