package admin

import (
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// Member is a member of the cluster, as Members shows it.
type Member struct {
	Name   string `json:"name"`
	Addr   string `json:"addr"`
	Region string `json:"region"`
	Self   bool   `json:"self"`
	State  string `json:"state"`
}

// Members is the response to GET /v1/members: the members that the node knows, sorted by name. Next is the
// value of the parameter after for the next page, and is empty if there are no more members.
type Members struct {
	Members []Member `json:"members"`
	Next    string   `json:"next,omitempty"`
}

// Ring is the response to GET /v1/ring.
type Ring struct {
	Members []RingMember `json:"members"`
}

// RingMember is a member and its share of all keys, 0 to 1.
type RingMember struct {
	Name  string  `json:"name"`
	Share float64 `json:"share"`
}

// Outcomes counts decisions by their result.
type Outcomes struct {
	Allowed uint64 `json:"allowed"`
	Denied  uint64 `json:"denied"`
}

// Limits maps the name of a limit to the number of its decisions for each source.
type Limits map[string]map[string]Outcomes

// Latency is a histogram of the durations of checks. weir.LatencyBounds returns the bounds, and the comment
// of weir.Latency describes the accuracy.
type Latency struct {
	Count   uint64          `json:"count"`
	SumUS   float64         `json:"sum_us"`
	Buckets []LatencyBucket `json:"buckets"`
}

// BanStats is the number of bans of a limit, and of the decisions that denied a banned key.
type BanStats struct {
	Begun  uint64 `json:"begun"`
	Denied uint64 `json:"denied"`
}

// LatencyBucket counts the checks that took at most UpToUS microseconds.
type LatencyBucket struct {
	UpToUS float64 `json:"up_to_us"`
	Count  uint64  `json:"count"`
}

// Stats is the response to GET /v1/stats. weir.Stats describes the fields. Durations are in milliseconds,
// except the fields of Latency.
type Stats struct {
	Version   string              `json:"version"`
	Ready     bool                `json:"ready"`
	Decisions map[string]Outcomes `json:"decisions"`
	Limits    Limits              `json:"limits"`
	Latency   map[string]Latency  `json:"latency"`
	Shadows   Outcomes            `json:"shadows"`
	Trials    map[string]Outcomes `json:"shadow_limits"`
	Bans      map[string]BanStats `json:"bans"`
	Served    uint64              `json:"served"`
	Passed    uint64              `json:"passed"`
	Overdue   uint64              `json:"overdue"`
	LateUnits uint64              `json:"late_units"`
	Canceled  uint64              `json:"canceled"`
	Conflicts uint64              `json:"conflicts"`
	Keys      int                 `json:"keys"`
	MaxKeys   int                 `json:"keys_max"`
	Bytes     int                 `json:"bytes"`
	Evicted   uint64              `json:"evicted"`
	UsedUp    uint64              `json:"evicted_used_up"`
	Missing   map[string]int64    `json:"missing_ms"`
	Leases    Leases              `json:"leases"`
	Stream    Stream              `json:"stream"`
	Published Published           `json:"published"`
	Snapshots Snapshots           `json:"snapshots"`
	Holdings  Holdings            `json:"holdings"`
	Holds     Holds               `json:"holds"`
	Reserved  Reservations        `json:"reservations"`
	Regions   map[string]Region   `json:"regions,omitempty"`
	Outage    Outage              `json:"outage"`
	Unjoined  int64               `json:"unjoined_ms"`
	Cluster   Cluster             `json:"cluster"`
	Rules     *Rules              `json:"rules,omitempty"`
}

// Rules is the state of the rules, with the decisions of their limits.
type Rules struct {
	rulesState
	InForce bool `json:"in_force"`
	Rules   int  `json:"rules"`
	Limits  int  `json:"limits"`

	Blocked map[string]uint64 `json:"blocked"` // refused requests, by the kind of the block

	Outcomes []RuleOutcomes `json:"outcomes"` // decisions about each limit, in the order of the rules
	Factors  []Factor       `json:"factors"`  // the factor of each rule with adapt
}

// rulesState has the fields that the responses to GET /v1/stats and GET /v1/rules have in common.
type rulesState struct {
	Version   uint64    `json:"version"`
	Hash      string    `json:"hash"`
	Serial    uint64    `json:"serial"`
	LoadedAt  time.Time `json:"loaded_at"`
	Loads     uint64    `json:"loads"`
	Refused   uint64    `json:"refused"`
	Missing   bool      `json:"missing"`
	Overrides int       `json:"overrides"`
	Switches  int       `json:"switches"`
	Blocks    int       `json:"blocks"`

	Published   *PublishedText `json:"published,omitempty"`    // the text in force, if it was published; nil if it is from the source of the rules
	RefusedText *PublishedText `json:"refused_text,omitempty"` // a published text that cannot be in force
}

func showState(s *rules.BookStats) rulesState {
	return rulesState{
		Version: s.Version, Hash: s.Hash, Serial: s.Serial, LoadedAt: s.LoadedAt.UTC().Truncate(time.Second), Loads: s.Loads, Refused: s.Refused,
		Missing: s.Missing, Overrides: s.Overrides, Switches: s.Switches, Blocks: s.Blocks, Published: showText(s.Published), RefusedText: showText(s.RefusedText),
	}
}

// Factor is the factor of the numbers of a rule with adapt.
type Factor struct {
	Rule    string     `json:"rule"`
	Factor  float64    `json:"factor"`
	Reason  string     `json:"reason,omitempty"`  // reason for the last change
	Changed *time.Time `json:"changed,omitempty"` // nil if the factor never changed, or its published value has ended
}

func showFactor(a rules.Adaptation) Factor {
	return Factor{Rule: a.Rule, Factor: a.Factor, Reason: a.Reason, Changed: truncateTime(a.At)}
}

// RuleOutcomes counts the enforced and the shadow decisions of a limit of a rule.
type RuleOutcomes struct {
	Rule     string   `json:"rule"`
	Limit    string   `json:"limit"`
	Mode     string   `json:"mode"` // a text of rules.Mode
	Enforced Outcomes `json:"enforced"`
	Shadowed Outcomes `json:"shadowed"`
}

// Leases counts the units that the node has borrowed and lent.
type Leases struct {
	HeldUnits int `json:"held_units"`
	LentUnits int `json:"lent_units"`
}

// Stream is the state of the replicas that the node sends.
type Stream struct {
	Unsent  int   `json:"unsent"`
	LagMS   int64 `json:"lag_ms"`
	Tallies int   `json:"tallies"`
	Resets  int   `json:"resets"`
	Bytes   int   `json:"bytes"`

	Sent           uint64 `json:"sent"`
	TalliesDropped uint64 `json:"tallies_dropped"`
	ResetsDropped  uint64 `json:"resets_dropped"`
}

// Published is the state of the published values.
type Published struct {
	Values     int    `json:"values"`
	Tombstones int    `json:"tombstones"`
	Bytes      int    `json:"bytes"`
	Revision   uint64 `json:"revision"`
	Dropped    uint64 `json:"dropped"`
}

// Snapshots is the state of the snapshots that the node loads and saves.
type Snapshots struct {
	Loading    bool   `json:"loading"`
	Loaded     int    `json:"loaded"`
	LoadTookMS int64  `json:"load_took_ms"`
	Refused    int    `json:"refused"`
	Saved      uint64 `json:"saved"`
	Failures   uint64 `json:"failures"`
	Error      string `json:"error"`
	AgeMS      int64  `json:"age_ms"`
	TookMS     int64  `json:"took_ms"`
	Bytes      int64  `json:"bytes"`
	Counts     int    `json:"counts"`
}

// Holdings is the state of the region's parts of Global limits on the node.
type Holdings struct {
	Keys   int    `json:"keys"`
	Beyond uint64 `json:"beyond"`
}

// Holds counts holds of in_flight limits.
type Holds struct {
	Held  int    `json:"held"`
	Known int    `json:"known"`
	Lost  uint64 `json:"lost"`
}

// Reservations counts reservations by how they ended, and the units that were returned and debited
// when they ended.
type Reservations struct {
	Made          uint64 `json:"made"`
	Settled       uint64 `json:"settled"`
	Canceled      uint64 `json:"canceled"`
	Carried       uint64 `json:"carried"`
	Unsettled     uint64 `json:"unsettled"`
	UnitsReturned uint64 `json:"units_returned"`
	UnitsDebited  uint64 `json:"units_debited"`
}

// Region is the state of the exchange with another region.
type Region struct {
	Reached    bool   `json:"reached"`
	LagMS      int64  `json:"lag_ms"`
	Statements uint64 `json:"statements"`
	Unanswered uint64 `json:"unanswered"`
	Served     uint64 `json:"served"`
	Disputed   uint64 `json:"disputed"`
	Refused    uint64 `json:"refused"`
	Sent       uint64 `json:"sent"`
	Received   uint64 `json:"received"`
}

// Cluster is the state of the connections to other members.
type Cluster struct {
	Refused   map[string]uint64 `json:"refused"`
	Timeouts  uint64            `json:"timeouts"`
	Late      uint64            `json:"late"`
	Dropped   uint64            `json:"dropped"`
	JoinError string            `json:"join_error"`
	Joined    int               `json:"joined"`

	Unanswered      map[string]string  `json:"unanswered"`
	RoundTrips      map[string]float64 `json:"round_trips_ms"`
	SchedulingDelay int64              `json:"scheduling_delay_ms"`
}

// Outage is the current outage. Since is nil if there is none.
type Outage struct {
	Since     *time.Time `json:"since,omitempty"`
	Missing   []string   `json:"missing"`
	Decisions uint64     `json:"decisions"`
	Count     uint64     `json:"count"`
}

// Left is the state of a count. ResetAt and RetryAfterS are rounded up.
type Left struct {
	Allowed     bool      `json:"allowed"`
	Limit       int64     `json:"limit"`
	Remaining   int64     `json:"remaining"`
	ResetAt     time.Time `json:"reset_at"`
	RetryAfterS int64     `json:"retry_after_s"`
}

// Take is the answer of a limit, such as the response to POST /v1/take.
type Take struct {
	Name         string `json:"name"`
	Source       string `json:"source"`
	Shadow       bool   `json:"shadow"`
	Off          bool   `json:"off,omitempty"`           // the rule is off, and the limit was not asked
	Banned       bool   `json:"banned,omitempty"`        // the key is banned, and each request is denied until the ban ends
	ShadowDenied bool   `json:"shadow_denied,omitempty"` // the limit of a shadow has denied, and nothing is enforced
	Soft         bool   `json:"soft,omitempty"`          // the overrun of the rule has granted the units
	Granted      int64  `json:"granted,omitempty"`       // units granted to a take with at_most
	Left
}

// Totals is the response to GET /v1/totals: the sums of the decisions that each member has counted since
// its start.
type Totals struct {
	Answered  []string            `json:"answered"` // names of members, sorted
	Missing   []string            `json:"missing"`
	Decisions map[string]Outcomes `json:"decisions"` // keyed by source
	Limits    map[string]Total    `json:"limits"`
}

// Total is the number of decisions about a limit.
type Total struct {
	Enforced Outcomes `json:"enforced"`
	Shadowed Outcomes `json:"shadowed"`
}

// showTotals returns the sums over the members that answered.
func showTotals(t weir.Totals) Totals {
	sums := Totals{
		Answered: slices.Sorted(maps.Keys(t.Members)), Missing: append([]string{}, t.Missing...),
		Decisions: make(map[string]Outcomes), Limits: make(map[string]Total),
	}
	for _, member := range t.Members {
		for source, o := range member.Decisions {
			sums.Decisions[source.String()] = sums.Decisions[source.String()].plus(o)
		}
		for name, l := range member.Limits {
			total := sums.Limits[name]
			sums.Limits[name] = Total{total.Enforced.plus(l.Outcomes), total.Shadowed.plus(l.Shadow)}
		}
	}
	return sums
}

func (o Outcomes) plus(more weir.Outcomes) Outcomes {
	return Outcomes{o.Allowed + more.Allowed, o.Denied + more.Denied}
}

// Top is the response to GET /v1/top: the keys of all members with the most checks, denials and held
// units.
type Top struct {
	Asked   []TopKey `json:"asked"`
	Denied  []TopKey `json:"denied"`
	Held    []TopKey `json:"held"`
	Missing []string `json:"missing"`
	Silent  []string `json:"silent"`
}

// TopKey is a key with its counts. Key is nil unless a member that answered has the text of the key and may
// send it (weir.Node.TopKeys). weir.TopKey describes the accuracy of the counts.
type TopKey struct {
	Limit       string  `json:"limit"`
	ID          string  `json:"id"`
	Key         *string `json:"key,omitempty"`
	Masked      bool    `json:"masked,omitempty"`
	Asks        uint64  `json:"asks"`
	AsksOver    uint64  `json:"asks_over"`
	Denials     uint64  `json:"denials"`
	DenialsOver uint64  `json:"denials_over"`
	Held        int64   `json:"held,omitempty"`
	HeldMost    int64   `json:"held_most,omitempty"`
}

// NewTop converts the result of Node.TopKeys.
func NewTop(t weir.TopKeys) Top {
	top := Top{
		Asked: showAll(t.Asked, showKey), Denied: showAll(t.Denied, showKey), Held: make([]TopKey, len(t.Held)),
		Missing: append([]string{}, t.Missing...), Silent: append([]string{}, t.Silent...),
	}
	for i, k := range t.Held {
		top.Held[i] = showKey(k.TopKey)
		top.Held[i].Held, top.Held[i].HeldMost = k.Held, k.Most
	}
	return top
}

// showAll shows each item of a list. The result is never nil, so that JSON has a list.
func showAll[T, A any](all []T, show func(T) A) []A {
	shown := make([]A, len(all))
	for i, item := range all {
		shown[i] = show(item)
	}
	return shown
}

func showKey(k weir.TopKey) TopKey {
	shown := TopKey{Limit: k.Limit, ID: hex.EncodeToString(k.ID[:]), Masked: k.Masked, Asks: k.Asks, AsksOver: k.AsksOver, Denials: k.Denials, DenialsOver: k.DenialsOver}
	if k.Known {
		shown.Key = &k.Key
	}
	return shown
}
