package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/buildinfo"
	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/rules"
)

// maxMembers is the maximum number of members in a response.
const maxMembers = 256

// members returns the members of the cluster whose names follow the parameter after.
func (a *api) members(r *request) (int, any, error) {
	var after string
	err := r.parameters(field{name: "after", into: &after})
	return http.StatusOK, showMembers(a.node.Members(), after), err
}

// showMembers returns the first maxMembers members, sorted by name, whose names follow the name in the
// argument after. The member of that name may have left since the previous page.
func showMembers(all []weir.Member, after string) Members {
	var page Members
	from, found := slices.BinarySearchFunc(all, after, func(m weir.Member, name string) int { return strings.Compare(m.Name, name) })
	if found {
		from++
	}
	all = all[from:]
	if len(all) > maxMembers {
		all = all[:maxMembers]
		page.Next = all[maxMembers-1].Name
	}
	page.Members = showAll(all, func(m weir.Member) Member {
		return Member{Name: m.Name, Addr: m.Addr, Region: m.Region, Self: m.Self, State: m.State.String()}
	})
	return page
}

// deleteMember removes a dead member from the roster.
func (a *api) deleteMember(r *request) (int, any, error) {
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
		return 0, nil, refuse(http.StatusNotFound, "there is no member %q: %s", r.rest, enum.Suggest(r.rest, names))
	case found.State != weir.Dead:
		return 0, nil, refuse(http.StatusConflict, "%q is %v: only a dead member can be forgotten", r.rest, found.State)
	}
	if err := a.node.Forget(r.rest); err != nil {
		return 0, nil, err
	}
	a.log.Info("an operator removed a dead member", "member", r.rest, "client", r.by, "addr", r.RemoteAddr)
	return http.StatusNoContent, nil, nil
}

// ring returns the fraction of the keys that each member owns.
func (a *api) ring(*request) (int, any, error) {
	parts := a.node.Ring()
	show := func(m weir.Member) RingMember { return RingMember{Name: m.Name, Share: parts[m.Name]} }
	return http.StatusOK, Ring{showAll(a.node.Members(), show)}, nil
}

// showMap converts the values of a map. The result is never nil, because the API shows an empty map as {}.
func showMap[K comparable, V, W any](values map[K]V, show func(V) W) map[string]W {
	all := make(map[string]W, len(values))
	for name, v := range values {
		all[fmt.Sprint(name)] = show(v)
	}
	return all
}

func identity[V any](v V) V { return v }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func showOutcomes(o weir.Outcomes) Outcomes { return Outcomes(o) }

func showRegion(r weir.RegionStats) Region {
	return Region{
		Reached: r.Reached, LagMS: r.Lag.Milliseconds(), Statements: r.Statements, Unanswered: r.Unanswered, Served: r.Served,
		Disputed: r.Disputed, Refused: r.Refused, Sent: r.Sent, Received: r.Received,
	}
}

func showDecisions(bySource map[weir.Source]weir.Outcomes) map[string]Outcomes {
	return showMap(bySource, showOutcomes)
}

func showLatency(l weir.Latency) Latency {
	a, bounds := Latency{Count: l.Count, SumUS: float64(l.Sum) / float64(time.Microsecond), Buckets: []LatencyBucket{}}, weir.LatencyBounds()
	for i, n := range l.Buckets {
		a.Buckets = append(a.Buckets, LatencyBucket{UpToUS: float64(bounds[i]) / float64(time.Microsecond), Count: n})
	}
	return a
}

func showRuleOutcomes(o rules.LimitOutcomes) RuleOutcomes {
	return RuleOutcomes{Rule: o.Rule, Limit: o.Limit, Mode: o.Mode.String(), Enforced: Outcomes(o.Enforced), Shadowed: Outcomes(o.Shadowed)}
}

// NewRules returns the state of the rules of a Book, or nil without a Book.
func NewRules(b *rules.Book, stats weir.Stats) *Rules {
	if b == nil {
		return nil
	}
	s, now := b.Stats(), b.Current()
	return &Rules{
		rulesState: showState(&s), InForce: s.LastError == nil, Rules: s.Rules, Limits: s.Limits, Blocked: s.Blocked,
		Outcomes: showAll(now.Outcomes(stats), showRuleOutcomes), Factors: showAll(now.Adaptations(), showFactor),
	}
}

func showSnapshots(s weir.SnapshotStats) Snapshots {
	return Snapshots{
		Loading: s.Loading, Loaded: s.Loaded, LoadTookMS: s.LoadTook.Milliseconds(), Refused: s.Refused,
		Saved: s.Saved, Failures: s.Failures, Error: s.Error, AgeMS: s.Age.Milliseconds(), TookMS: s.Took.Milliseconds(), Bytes: s.Bytes, Counts: s.Counts,
	}
}

// showOutage converts an outage. Since is nil if there is none.
func showOutage(o weir.OutageStats) Outage {
	return Outage{Since: truncateTime(o.Since), Missing: append([]string{}, o.Missing...), Decisions: o.Decisions, Count: o.Count}
}

// stats returns the counters of the node and the state of its rules.
func (a *api) stats(*request) (int, any, error) {
	s := a.node.Stats()
	return http.StatusOK, Stats{
		Version: buildinfo.Version(), Ready: a.node.Ready(), Decisions: showDecisions(s.Decisions), Limits: showMap(s.Limits, showDecisions), Latency: showMap(s.Latency, showLatency), Shadows: Outcomes(s.Shadows), Trials: showMap(s.ShadowLimits, showOutcomes),
		Bans:   showMap(s.Bans, func(b weir.BanStats) BanStats { return BanStats(b) }),
		Served: s.Served, Passed: s.Passed, Overdue: s.Overdue, LateUnits: s.LateUnits, Canceled: s.Canceled, Conflicts: s.Conflicts,
		Keys: s.Keys, MaxKeys: s.MaxKeys, Bytes: s.Bytes, Evicted: s.Evicted, UsedUp: s.EvictedUsedUp,
		Missing: showMap(s.Missing, time.Duration.Milliseconds), Leases: Leases(s.Leases),
		Stream: Stream{
			Unsent: s.Stream.Unsent, LagMS: s.Stream.Lag.Milliseconds(), Tallies: s.Stream.Tallies, Resets: s.Stream.Resets,
			Bytes: s.Stream.Bytes, Sent: s.Stream.Sent, TalliesDropped: s.Stream.TalliesDropped, ResetsDropped: s.Stream.ResetsDropped,
		},
		Published: Published(s.Published), Snapshots: showSnapshots(s.Snapshots), Holdings: Holdings(s.Holdings), Holds: Holds(s.Holds), Reserved: Reservations(s.Reservations), Regions: showMap(s.Regions, showRegion),
		Outage: showOutage(s.Outage), Unjoined: s.Unjoined.Milliseconds(),
		Cluster: Cluster{
			Refused: showMap(s.Cluster.Refused, identity), Timeouts: s.Cluster.Timeouts, Late: s.Cluster.Late, Dropped: s.Cluster.Dropped,
			JoinError: s.Cluster.JoinError, Joined: s.Cluster.JoinedCount,
			Unanswered: showMap(s.Cluster.Unanswered, identity), RoundTrips: showMap(s.Cluster.RoundTrips, milliseconds), SchedulingDelay: s.Cluster.SchedulingDelay.Milliseconds(),
		},
		Rules: NewRules(a.book, s),
	}, nil
}
