package weirprom

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/contrib/internal/metrics"
	"github.com/weir-go/weir/rules"
)

// exported contains the series of each field. A map entry is named by its key, which in
// the tests is owner or "some".
var exported = map[string]string{
	"Decisions.owner.Allowed":    "weir_decisions_total{outcome=allowed,source=owner}",
	"Decisions.owner.Denied":     "weir_decisions_total{outcome=denied,source=owner}",
	"Limits.some.owner.Allowed":  "weir_limit_decisions_total{limit=some,outcome=allowed,source=owner}",
	"Limits.some.owner.Denied":   "weir_limit_decisions_total{limit=some,outcome=denied,source=owner}",
	"Latency.owner.Count":        "weir_check_seconds{source=owner}.count",
	"Latency.owner.Sum":          "weir_check_seconds{source=owner}.sum",
	"Latency.owner.Buckets.some": "weir_check_seconds{source=owner}.2.5e-07",
	"ShadowLimits.some.Allowed":  "weir_limit_shadows_total{limit=some,outcome=allowed}",
	"ShadowLimits.some.Denied":   "weir_limit_shadows_total{limit=some,outcome=denied}",
	"Bans.some.Begun":            "weir_bans_total{limit=some}",
	"Bans.some.Denied":           "weir_banned_total{limit=some}",
	"Served":                     "weir_served_total{result=decided}",
	"Passed":                     "weir_served_total{result=passed}",
	"Overdue":                    "weir_served_total{result=overdue}",
	"Conflicts":                  "weir_limit_conflicts_total",
	"Bytes":                      "weir_store_bytes",
	"Missing.some":               "weir_cluster_missing_seconds",
	"Holds.Held":                 "weir_holds",
	"Holds.Known":                "weir_holds_known",
	"Holds.Lost":                 "weir_holds_lost_total",
	"Leases.HeldUnits":           "weir_lease_units{direction=held}",
	"Leases.LentUnits":           "weir_lease_units{direction=lent}",
	"Reservations.Made":          "weir_reservations_total{event=made}",
	"Reservations.Settled":       "weir_reservations_total{event=settled}",
	"Reservations.Canceled":      "weir_reservations_total{event=canceled}",
	"Reservations.Carried":       "weir_reservations_total{event=carried}",
	"Reservations.Unsettled":     "weir_reservations_total{event=unsettled}",
	"Reservations.UnitsReturned": "weir_reservation_units_total{direction=returned}",
	"Reservations.UnitsDebited":  "weir_reservation_units_total{direction=debited}",
	"Stream.Sent":                "weir_stream_sent_total",
	"Cluster.RoundTrips.some":    "weir_cluster_round_trip_seconds{statistic=max}",
	"Cluster.SchedulingDelay":    "weir_cluster_scheduling_delay_seconds",
	"Keys":                       "weir_keys",
	"MaxKeys":                    "weir_keys_max",
	"Evicted":                    "weir_evicted_total",
	"EvictedUsedUp":              "weir_evicted_used_up_total",
	"Stream.Unsent":              "weir_stream_unsent",
	"Stream.Lag":                 "weir_stream_lag_seconds",
	"Stream.Tallies":             "weir_stream_tallies",
	"Stream.TalliesDropped":      "weir_state_dropped_total{kind=tally}",
	"Stream.ResetsDropped":       "weir_state_dropped_total{kind=reset}",
	"Published.Values":           "weir_published_values",
	"Published.Bytes":            "weir_published_bytes",
	"Published.Dropped":          "weir_state_dropped_total{kind=published}",
	"Snapshots.Age":              "weir_snapshot_age_seconds",
	"Snapshots.Error":            "weir_snapshot_failed", // as with JoinError
	"Snapshots.Took":             "weir_snapshot_seconds{operation=write}",
	"Snapshots.Bytes":            "weir_snapshot_bytes",
	"Snapshots.Saved":            "weir_snapshot_saved_total",
	"Snapshots.LoadTook":         "weir_snapshot_seconds{operation=load}",
	"Snapshots.Refused":          "weir_snapshot_refused_total",
	"Snapshots.Foreign":          "weir_snapshot_foreign",
	"Holdings.Beyond":            "weir_state_dropped_total{kind=holding}",
	"Regions.some.Reached":       "weir_region_reached{region=some}",
	"Regions.some.Statements":    "weir_region_statements_total{region=some}",
	"Regions.some.Unanswered":    "weir_region_unanswered_total{region=some}",
	"Regions.some.Disputed":      "weir_region_refused_total{reason=disputed,region=some}",
	"Regions.some.Refused":       "weir_region_refused_total{reason=forbidden,region=some}",
	"Regions.some.Sent":          "weir_region_bytes_total{direction=sent,region=some}",
	"Regions.some.Received":      "weir_region_bytes_total{direction=received,region=some}",
	"Outage.Since":               "weir_outage_since_timestamp_seconds",
	"Outage.Missing":             "weir_outage_missing", // the names are in the log and the admin API
	"Outage.Count":               "weir_outages_total",
	"Unjoined":                   "weir_cluster_unjoined_seconds",
	"Cluster.Refused.some":       "weir_cluster_refused_total{reason=some}",
	"Cluster.Timeouts":           "weir_cluster_faults_total{kind=timeout}",
	"Cluster.Late":               "weir_cluster_faults_total{kind=late}",
	"Cluster.Dropped":            "weir_cluster_faults_total{kind=dropped}",
	"Cluster.JoinError":          "weir_cluster_join_failed", // the text is in the log and the admin API: as a label it would be unbounded
}

// unexported contains the fields without a metric, and the reason.
var unexported = map[string]string{
	"Shadows.Allowed":         "weir_limit_shadows_total has them by limit",
	"Shadows.Denied":          "weir_limit_shadows_total has them by limit",
	"LateUnits":               "no alert, panel or runbook needs it; GET /v1/stats has it",
	"Canceled":                "no alert, panel or runbook needs it; GET /v1/stats has it",
	"Stream.Resets":           "no alert, panel or runbook needs it; GET /v1/stats has it",
	"Stream.Bytes":            "no alert, panel or runbook needs it; GET /v1/stats has it",
	"Published.Tombstones":    "no alert, panel or runbook needs it; GET /v1/stats has it",
	"Published.Revision":      "no alert, panel or runbook needs it; GET /v1/stats has it",
	"Snapshots.Counts":        "no alert, panel or runbook needs it; GET /v1/stats has it",
	"Snapshots.Failures":      "weir_snapshot_failed has the last",
	"Snapshots.Loading":       "the node is not ready meanwhile",
	"Snapshots.Loaded":        "no alert, panel or runbook needs it; GET /v1/stats has it",
	"Snapshots.Skipped":       "no alert, panel or runbook needs it; GET /v1/stats has it",
	"Holdings.Keys":           "weir_state_dropped_total counts those without room",
	"Regions.some.Lag":        "weir_region_reached is 0 after ten seconds",
	"Regions.some.Served":     "the other region counts them as sent",
	"Outage.Decisions":        "weir_decisions_total has them by source",
	"Cluster.JoinedCount":     "no alert, panel or runbook needs it; GET /v1/stats has it",
	"Cluster.Unanswered.some": "weir_cluster_unjoined_seconds tells that none answered",
}

// exportedRules is like exported, for rules.BookStats.
var exportedRules = map[string]string{
	"Version":       "weir_rules_info{hash=,version=1234567}",
	"Hash":          "weir_rules_info{hash=some,version=0}",
	"LastError":     "weir_rules_in_force",
	"RefusedText":   "weir_rules_in_force",
	"Blocked.some":  "weir_rules_blocked_total{kind=some}",
	"Warnings.some": "weir_rule_warnings_total{rule=some}",

	"Suggestions":             "weir_rules_suggestions",
	"Factors.some":            "weir_rule_factor{rule=some}",
	"FactorChanges.some.some": "weir_rule_factor_changes_total{reason=some,rule=some}",
}

// unexportedRules is like unexported, for rules.BookStats.
var unexportedRules = map[string]string{
	"Source":    "a source is the configuration's, and changes never",
	"Serial":    "GET /v1/stats has it",
	"LoadedAt":  "GET /v1/stats has it; weir_rules_info changes",
	"Loads":     "GET /v1/stats has it; weir_rules_info changes",
	"Refused":   "GET /v1/stats has it; weir_rules_in_force is 0",
	"Missing":   "GET /v1/stats has it; weir_rules_in_force is 0",
	"Rules":     "GET /v1/stats has it",
	"Limits":    "GET /v1/stats has it",
	"Overrides": "GET /v1/stats has it",
	"Switches":  "GET /v1/stats has it",
	"Blocks":    "GET /v1/stats has it",
	"Published": "GET /v1/stats has it; weir_rules_info changes",
}

func TestEachStatsFieldHasSeriesOrReason(t *testing.T) {
	var node metrics.NodeStats
	requireSeries(t, &node.Stats, newFamilies(metrics.OfNode(), func() metrics.NodeStats { return node }), exported, unexported)
	book := rules.BookStats{LoadedAt: time.Unix(0, 0)}
	requireSeries(t, &book, newFamilies(metrics.OfBook(), func() rules.BookStats { return book }), exportedRules, unexportedRules)
}

// requireSeries requires that each field of stats changes only the series in exported, or
// no series if it is in unexported.
func requireSeries(t *testing.T, stats any, c prometheus.Collector, exported, unexported map[string]string) {
	got := func() map[string]float64 { return series(t, registry(t, c)) }
	zero := got()
	found := make(map[string]bool)
	forEachField(t, reflect.ValueOf(stats).Elem(), "", func(path string, want float64) {
		found[path] = true
		changed := got()
		for name, value := range zero {
			if is, there := changed[name]; there && is == value {
				delete(changed, name)
			}
		}
		if _, ok := unexported[path]; ok {
			require.NotContains(t, exported, path)
			require.Empty(t, removeZeros(changed), path)
			return
		}
		name, ok := exported[path]
		require.True(t, ok, "%T.%s has no metric: add one, here and to docs/metrics.md, or say why not", stats, path)
		switch path {
		case "LastError", "RefusedText": // both fields of a Book mean that a text is not in force
			require.Equal(t, map[string]float64{name: 0}, changed, path)
			return
		case "Version": // a label
			want = 1
		case "Cluster.RoundTrips.some":
			delete(changed, strings.Replace(name, "max", "median", 1)) // the maximum of one member is its value
		}
		require.Equal(t, map[string]float64{name: want}, removeZeros(changed), path)
	})
	for path := range exported {
		require.True(t, found[path], "%T has no %s any more", stats, path)
	}
	for path := range unexported {
		require.True(t, found[path], "%T has no %s any more", stats, path)
	}
}

// forEachField sets each field of v in turn, calls look with the value as a metric shows it,
// and restores the field.
func forEachField(t *testing.T, v reflect.Value, path string, look func(path string, want float64)) {
	set := func(to any, want float64) {
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		v.Set(reflect.ValueOf(to).Convert(v.Type()))
		look(path, want)
		v.Set(old)
	}
	switch v.Interface().(type) {
	case time.Duration:
		set(2500*time.Millisecond, 2.5)
		return
	case time.Time:
		set(time.UnixMilli(2500), 2.5)
		return
	}
	below := func(name string) string {
		if path == "" {
			return name
		}
		return path + "." + name
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				forEachField(t, v.Field(i), below(f.Name), look)
			}
		}
	case reflect.Map:
		key := reflect.ValueOf("some")
		name := "some"
		if v.Type().Key() == reflect.TypeFor[weir.Source]() {
			key, name = reflect.ValueOf(weir.Owner), weir.Owner.String()
		}
		entry := reflect.New(v.Type().Elem()).Elem()
		forEachField(t, entry, below(name), func(path string, want float64) {
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(key, entry)
			look(path, want)
			v.SetZero()
		})
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint64 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			forEachField(t, v.Index(0), below("some"), look)
			v.SetZero()
			return
		}
		set(reflect.MakeSlice(v.Type(), 3, 3).Interface(), 3)
	case reflect.Bool:
		set(true, 1)
	case reflect.String:
		set("some", 1)
	case reflect.Float64:
		set(0.5, 0.5)
	case reflect.Int, reflect.Int64, reflect.Uint64:
		set(1234567, 1234567)
	case reflect.Pointer:
		set(reflect.New(v.Type().Elem()).Interface(), 1)
	case reflect.Interface:
		set(errors.New("some"), 1)
	default:
		t.Fatalf("%s is a %v: say how it is filled", path, v.Type())
	}
}

// removeZeros removes zero values and the series of the build, which do not depend on
// statistics.
func removeZeros(values map[string]float64) map[string]float64 {
	for name, value := range values {
		if value == 0 || strings.HasPrefix(name, "weir_build_info{") {
			delete(values, name)
		}
	}
	return values
}

func TestRefusalReasonsEqualThoseOfCluster(t *testing.T) {
	var reasons []string
	for _, file := range []string{"refusals.go", "gossip/transport.go"} {
		text, err := os.ReadFile("../../cluster/" + file)
		require.NoError(t, err)
		reasons = append(reasons, captures(`[rR]eason[A-Z]\w* += "(\w+)"`, string(text))...)
	}
	require.ElementsMatch(t, metrics.Refusals(), reasons)
}

func TestMembersAreCountedByState(t *testing.T) {
	is := metrics.NodeStats{Members: []weir.Member{{State: weir.Serving}, {State: weir.Dead}, {State: weir.Serving}, {State: weir.Joining}, {State: weir.Missing}}}
	require.Equal(t, map[string]float64{
		"weir_cluster_members{state=serving}": 2, "weir_cluster_members{state=dead}": 1,
		"weir_cluster_members{state=joining}": 1, "weir_cluster_members{state=missing}": 1,
	}, removeZeros(series(t, registry(t, newFamilies(metrics.OfNode(), func() metrics.NodeStats { return is })))))
}

func TestMembersHaveNoSeriesOfTheirOwn(t *testing.T) {
	of := func(members int) map[string]float64 {
		is := metrics.NodeStats{Stats: weir.Stats{Missing: map[string]time.Duration{}}}
		is.Cluster.RoundTrips = map[string]time.Duration{}
		for i := range members {
			name := fmt.Sprint("member-", i)
			is.Members = append(is.Members, weir.Member{Name: name, State: weir.Serving})
			is.Missing[name], is.Cluster.RoundTrips[name] = time.Duration(i)*time.Second, time.Duration(i)*time.Second
		}
		return series(t, registry(t, newFamilies(metrics.OfNode(), func() metrics.NodeStats { return is })))
	}
	many := of(1000)
	require.Len(t, many, len(of(1)))
	require.Equal(t, []float64{999, 499, 999}, []float64{
		many["weir_cluster_missing_seconds"], many["weir_cluster_round_trip_seconds{statistic=median}"], many["weir_cluster_round_trip_seconds{statistic=max}"],
	})
}

func TestInvalidUTF8NameDoesNotFailScrape(t *testing.T) {
	is := metrics.NodeStats{Stats: weir.Stats{Regions: map[string]weir.RegionStats{"\xff": {Sent: 1}, "\xfe": {Sent: 2}}}}
	got := series(t, registry(t, newFamilies(metrics.OfNode(), func() metrics.NodeStats { return is })))
	require.EqualValues(t, 1, got[`weir_region_bytes_total{direction=sent,region="\xff"}`])
	require.EqualValues(t, 2, got[`weir_region_bytes_total{direction=sent,region="\xfe"}`])
}
