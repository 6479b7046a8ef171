package httplimit

import (
	"net/http"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/release"
	"github.com/weir-go/weir/internal/spelling"
	"github.com/weir-go/weir/rules"
)

type memberAnswer struct {
	Name   string `json:"name"`
	Addr   string `json:"addr"`
	Region string `json:"region"`
	Self   bool   `json:"self"`
	State  string `json:"state"`
}

type membersAnswer struct {
	Members []memberAnswer `json:"members"`
}

func (a *admin) members(r *adminRequest) (int, any, error) {
	if err := r.parameters(); err != nil {
		return 0, nil, err
	}
	answer := membersAnswer{[]memberAnswer{}}
	for _, m := range a.node.Members() {
		answer.Members = append(answer.Members, memberAnswer{m.Name, m.Addr, m.Region, m.Self, m.State.String()})
	}
	return http.StatusOK, answer, nil
}

// deleteMember takes a dead member off the roster.
func (a *admin) deleteMember(r *adminRequest) (int, any, error) {
	if err := r.parameters(); err != nil {
		return 0, nil, err
	}
	var (
		names []string
		found *weir.Member
	)
	for _, m := range a.node.Members() {
		names = append(names, m.Name)
		if m.Name == r.rest {
			found = &m
		}
	}
	switch {
	case found == nil:
		return 0, nil, adminRefusal(http.StatusNotFound, "there is no member %q: %s", r.rest, spelling.Meant(r.rest, names))
	case found.State != weir.Dead:
		return 0, nil, adminRefusal(http.StatusConflict, "%q is %v: only a dead member can be forgotten", r.rest, found.State)
	}
	if err := a.node.Forget(r.rest); err != nil {
		return 0, nil, err
	}
	a.log.Info("member forgotten", "member", r.rest, "client", r.by, "addr", r.RemoteAddr)
	return http.StatusNoContent, nil, nil
}

type ringAnswer struct {
	Members []ringMember `json:"members"`
}

type ringMember struct {
	Name  string  `json:"name"`
	Share float64 `json:"share"`
}

// ring tells the part of all keys that each member owns.
func (a *admin) ring(r *adminRequest) (int, any, error) {
	if err := r.parameters(); err != nil {
		return 0, nil, err
	}
	answer, parts := ringAnswer{[]ringMember{}}, a.node.Ring()
	for _, m := range a.node.Members() {
		answer.Members = append(answer.Members, ringMember{m.Name, parts[m.Name]})
	}
	return http.StatusOK, answer, nil
}

type outcomesAnswer struct {
	Allowed uint64 `json:"allowed"`
	Denied  uint64 `json:"denied"`
}

// limitsAnswer is decisions by limit and source.
type limitsAnswer map[string]map[string]outcomesAnswer

func decisionsOf(of map[weir.Source]weir.Outcomes) map[string]outcomesAnswer {
	decisions := make(map[string]outcomesAnswer)
	for source, o := range of {
		decisions[source.String()] = outcomesAnswer(o)
	}
	return decisions
}

// latencyAnswer is a histogram of how long checks took.
type latencyAnswer struct {
	Count   uint64          `json:"count"`
	SumUS   float64         `json:"sum_us"`
	Buckets []latencyBucket `json:"buckets"`
}

type latencyBucket struct {
	UpToUS float64 `json:"up_to_us"`
	Count  uint64  `json:"count"`
}

func latencyOf(of map[weir.Source]weir.Latency) map[string]latencyAnswer {
	answers, bounds := make(map[string]latencyAnswer), weir.LatencyBounds()
	for source, l := range of {
		a := latencyAnswer{l.Count, float64(l.Sum) / float64(time.Microsecond), []latencyBucket{}}
		for i, n := range l.Buckets {
			a.Buckets = append(a.Buckets, latencyBucket{float64(bounds[i]) / float64(time.Microsecond), n})
		}
		answers[source.String()] = a
	}
	return answers
}

type topKeysAnswer struct {
	Asked   int    `json:"asked"`
	Denied  int    `json:"denied"`
	Dropped uint64 `json:"dropped"`
}

type statsAnswer struct {
	Version   string                    `json:"version"`
	Ready     bool                      `json:"ready"`
	Decisions map[string]outcomesAnswer `json:"decisions"`
	Limits    limitsAnswer              `json:"limits"`
	Latency   map[string]latencyAnswer  `json:"latency"`
	TopKeys   topKeysAnswer             `json:"top_keys"`
	Shadows   outcomesAnswer            `json:"shadows"`
	Trials    map[string]outcomesAnswer `json:"shadow_limits"`
	Served    uint64                    `json:"served"`
	Passed    uint64                    `json:"passed"`
	Overdue   uint64                    `json:"overdue"`
	LateUnits uint64                    `json:"late_units"`
	Canceled  uint64                    `json:"canceled"`
	Conflicts uint64                    `json:"conflicts"`
	Keys      int                       `json:"keys"`
	MaxKeys   int                       `json:"keys_max"`
	Bytes     int                       `json:"bytes"`
	Evicted   uint64                    `json:"evicted"`
	UsedUp    uint64                    `json:"evicted_used_up"`
	Unheard   map[string]int64          `json:"unheard_ms"`
	Leases    leasesAnswer              `json:"leases"`
	Stream    streamAnswer              `json:"stream"`
	Published publishedAnswer           `json:"published"`
	Snapshots snapshotsAnswer           `json:"snapshots"`
	Holdings  holdingsAnswer            `json:"holdings"`
	Holds     holdsAnswer               `json:"holds"`
	Reserved  reservationsAnswer        `json:"reservations"`
	Regions   map[string]regionAnswer   `json:"regions,omitempty"`
	Outage    outageAnswer              `json:"outage"`
	Unjoined  int64                     `json:"unjoined_ms"`
	Cluster   clusterAnswer             `json:"cluster"`
	Rules     *rulesStats               `json:"rules,omitempty"`
}

// rulesStats is what of the rules is worth an alarm or a graph.
type rulesStats struct {
	Version   uint64    `json:"version"`
	Hash      string    `json:"hash"`
	Serial    uint64    `json:"serial"`
	LoadedAt  time.Time `json:"loaded_at"`
	Loads     uint64    `json:"loads"`
	Refused   uint64    `json:"refused"`
	InForce   bool      `json:"in_force"`
	Missing   bool      `json:"missing"`
	Rules     int       `json:"rules"`
	Limits    int       `json:"limits"`
	Overrides int       `json:"overrides"`

	Outcomes []ruleOutcomes `json:"outcomes"` // of each limit, in the order of the rules
}

// ruleOutcomes is what a limit of a rule has decided, and what it would have as a shadow.
type ruleOutcomes struct {
	Rule     string         `json:"rule"`
	Limit    string         `json:"limit"`
	Shadow   bool           `json:"shadow"`
	Enforced outcomesAnswer `json:"enforced"`
	Shadowed outcomesAnswer `json:"shadowed"`
}

func statsOf(b *rules.Book, of weir.Stats) *rulesStats {
	if b == nil {
		return nil
	}
	s, outcomes := b.Stats(), []ruleOutcomes{}
	for _, o := range b.Current().Outcomes(of) {
		outcomes = append(outcomes, ruleOutcomes{o.Rule, o.Limit, o.Shadow, outcomesAnswer(o.Enforced), outcomesAnswer(o.Shadowed)})
	}
	return &rulesStats{
		Version: s.Version, Hash: s.Hash, Serial: s.Serial, LoadedAt: s.LoadedAt.UTC().Truncate(time.Second), Loads: s.Loads, Refused: s.Refused,
		InForce: s.LastError == nil, Missing: s.Missing, Rules: s.Rules, Limits: s.Limits, Overrides: s.Overrides,
		Outcomes: outcomes,
	}
}

type leasesAnswer struct {
	Held      int `json:"held"`
	HeldUnits int `json:"held_units"`
	Lent      int `json:"lent"`
	LentUnits int `json:"lent_units"`
}

type streamAnswer struct {
	Unsent  int   `json:"unsent"`
	LagMS   int64 `json:"lag_ms"`
	Tallies int   `json:"tallies"`
	Resets  int   `json:"resets"`
	Bytes   int   `json:"bytes"`

	Sent           uint64 `json:"sent"`
	TalliesDropped uint64 `json:"tallies_dropped"`
	ResetsDropped  uint64 `json:"resets_dropped"`
}

type publishedAnswer struct {
	Values     int    `json:"values"`
	Tombstones int    `json:"tombstones"`
	Bytes      int    `json:"bytes"`
	Revision   uint64 `json:"revision"`
	Dropped    uint64 `json:"dropped"`
}

type snapshotsAnswer struct {
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

func snapshotsOf(s weir.SnapshotStats) snapshotsAnswer {
	return snapshotsAnswer{
		s.Loading, s.Loaded, s.LoadTook.Milliseconds(), s.Refused,
		s.Saved, s.Failures, s.Error, s.Age.Milliseconds(), s.Took.Milliseconds(), s.Bytes, s.Counts,
	}
}

type holdingsAnswer struct {
	Keys   int    `json:"keys"`
	Beyond uint64 `json:"beyond"`
}

type holdsAnswer struct {
	Held  int    `json:"held"`
	Known int    `json:"known"`
	Lost  uint64 `json:"lost"`
}

type reservationsAnswer struct {
	Made          uint64 `json:"made"`
	Settled       uint64 `json:"settled"`
	Canceled      uint64 `json:"canceled"`
	Carried       uint64 `json:"carried"`
	Unsettled     uint64 `json:"unsettled"`
	UnitsReturned uint64 `json:"units_returned"`
	UnitsDebited  uint64 `json:"units_debited"`
}

type regionAnswer struct {
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

type clusterAnswer struct {
	Refused   map[string]uint64 `json:"refused"`
	Timeouts  uint64            `json:"timeouts"`
	Late      uint64            `json:"late"`
	Dropped   uint64            `json:"dropped"`
	JoinError string            `json:"join_error"`
	Joined    int               `json:"joined"`

	Unanswered map[string]string  `json:"unanswered"`
	RoundTrips map[string]float64 `json:"round_trips_ms"`
	Lateness   int64              `json:"lateness_ms"`
}

type outageAnswer struct {
	Since     *time.Time `json:"since,omitempty"`
	Missing   []string   `json:"missing"`
	Decisions uint64     `json:"decisions"`
	Count     uint64     `json:"count"`
}

// outageOf is an outage as the API has it: since is left out if there is none.
func outageOf(o weir.OutageStats) outageAnswer {
	a := outageAnswer{Missing: append([]string{}, o.Missing...), Decisions: o.Decisions, Count: o.Count}
	if !o.Since.IsZero() {
		since := o.Since.UTC().Truncate(time.Millisecond)
		a.Since = &since
	}
	return a
}

func (a *admin) stats(r *adminRequest) (int, any, error) {
	if err := r.parameters(); err != nil {
		return 0, nil, err
	}
	s := a.node.Stats()
	limits := make(limitsAnswer)
	for name, of := range s.Limits {
		limits[name] = decisionsOf(of)
	}
	trials := make(map[string]outcomesAnswer)
	for name, o := range s.ShadowLimits {
		trials[name] = outcomesAnswer(o)
	}
	regions := make(map[string]regionAnswer)
	for name, r := range s.Regions {
		regions[name] = regionAnswer{r.Reached, r.Lag.Milliseconds(), r.Statements, r.Unanswered, r.Served, r.Disputed, r.Refused, r.Sent, r.Received}
	}
	unheard, trips := make(map[string]int64), make(map[string]float64)
	for name, since := range s.Unheard {
		unheard[name] = since.Milliseconds()
	}
	for name, took := range s.Cluster.RoundTrips {
		trips[name] = float64(took) / float64(time.Millisecond)
	}
	refused := s.Cluster.Refused
	if refused == nil {
		refused = map[string]uint64{}
	}
	unanswered := s.Cluster.Unanswered
	if unanswered == nil {
		unanswered = map[string]string{}
	}
	return http.StatusOK, statsAnswer{
		Version: release.Version(), Ready: a.node.Ready(), Decisions: decisionsOf(s.Decisions), Limits: limits, Latency: latencyOf(s.Latency), TopKeys: topKeysAnswer(s.TopKeys), Shadows: outcomesAnswer(s.Shadows), Trials: trials,
		Served: s.Served, Passed: s.Passed, Overdue: s.Overdue, LateUnits: s.LateUnits, Canceled: s.Canceled, Conflicts: s.Conflicts,
		Keys: s.Keys, MaxKeys: s.MaxKeys, Bytes: s.Bytes, Evicted: s.Evicted, UsedUp: s.EvictedUsedUp,
		Unheard: unheard, Leases: leasesAnswer(s.Leases),
		Stream:    streamAnswer{s.Stream.Unsent, int64(s.Stream.Lag / time.Millisecond), s.Stream.Tallies, s.Stream.Resets, s.Stream.Bytes, s.Stream.Sent, s.Stream.TalliesDropped, s.Stream.ResetsDropped},
		Published: publishedAnswer(s.Published), Snapshots: snapshotsOf(s.Snapshots), Holdings: holdingsAnswer(s.Holdings), Holds: holdsAnswer(s.Holds), Reserved: reservationsAnswer(s.Reservations), Regions: regions,
		Outage: outageOf(s.Outage), Unjoined: s.Unjoined.Milliseconds(),
		Cluster: clusterAnswer{refused, s.Cluster.Timeouts, s.Cluster.Late, s.Cluster.Dropped, s.Cluster.JoinError, s.Cluster.JoinedCount, unanswered, trips, s.Cluster.Lateness.Milliseconds()},
		Rules:   statsOf(a.book, s),
	}, nil
}
