package weirprom

import (
	"errors"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/metrics"
	"github.com/weir-go/weir/rules"
)

// exported names the series of each field. A map's entry is named by its key,
// which for the tests is owner, or "some".
var exported = map[string]string{
	"Decisions.owner.Allowed":    "weir_decisions_total{outcome=allowed,source=owner}",
	"Decisions.owner.Denied":     "weir_decisions_total{outcome=denied,source=owner}",
	"Limits.some.owner.Allowed":  "weir_limit_decisions_total{limit=some,outcome=allowed,source=owner}",
	"Limits.some.owner.Denied":   "weir_limit_decisions_total{limit=some,outcome=denied,source=owner}",
	"Latency.owner.Count":        "weir_check_seconds{source=owner}.count",
	"Latency.owner.Sum":          "weir_check_seconds{source=owner}.sum",
	"Latency.owner.Buckets.some": "weir_check_seconds{source=owner}.2.5e-07",
	"TopKeys.Asked":              "weir_top_keys_asked",
	"TopKeys.Denied":             "weir_top_keys_denied",
	"TopKeys.Dropped":            "weir_top_keys_dropped_total",
	"Shadows.Allowed":            "weir_shadows_total{outcome=allowed}",
	"Shadows.Denied":             "weir_shadows_total{outcome=denied}",
	"ShadowLimits.some.Allowed":  "weir_limit_shadows_total{limit=some,outcome=allowed}",
	"ShadowLimits.some.Denied":   "weir_limit_shadows_total{limit=some,outcome=denied}",
	"Served":                     "weir_served_total",
	"Passed":                     "weir_passed_total",
	"Overdue":                    "weir_overdue_total",
	"LateUnits":                  "weir_late_units_total",
	"Canceled":                   "weir_canceled_total",
	"Conflicts":                  "weir_limit_conflicts_total",
	"Bytes":                      "weir_store_bytes",
	"Unheard.some":               "weir_cluster_unheard_seconds{member=some}",
	"Holds.Held":                 "weir_holds",
	"Holds.Known":                "weir_holds_known",
	"Holds.Lost":                 "weir_holds_lost_total",
	"Leases.Held":                "weir_leases_held",
	"Leases.HeldUnits":           "weir_leases_held_units",
	"Leases.Lent":                "weir_leases_lent",
	"Leases.LentUnits":           "weir_leases_lent_units",
	"Reservations.Made":          "weir_reservations_made_total",
	"Reservations.Settled":       "weir_reservations_settled_total",
	"Reservations.Canceled":      "weir_reservations_canceled_total",
	"Reservations.Carried":       "weir_reservations_carried_total",
	"Reservations.Unsettled":     "weir_reservations_unsettled_total",
	"Reservations.UnitsReturned": "weir_reservations_returned_units_total",
	"Reservations.UnitsDebited":  "weir_reservations_debited_units_total",
	"Stream.Sent":                "weir_stream_sent_total",
	"Regions.some.Lag":           "weir_region_lag_seconds{region=some}",
	"Cluster.RoundTrips.some":    "weir_cluster_round_trip_seconds{member=some}",
	"Cluster.Lateness":           "weir_cluster_lateness_seconds",
	"Keys":                       "weir_keys",
	"MaxKeys":                    "weir_keys_max",
	"Evicted":                    "weir_evicted_total",
	"EvictedUsedUp":              "weir_evicted_used_up_total",
	"Stream.Unsent":              "weir_stream_unsent",
	"Stream.Lag":                 "weir_stream_lag_seconds",
	"Stream.Tallies":             "weir_stream_tallies",
	"Stream.Resets":              "weir_stream_resets",
	"Stream.Bytes":               "weir_stream_bytes",
	"Stream.TalliesDropped":      "weir_stream_tallies_dropped_total",
	"Stream.ResetsDropped":       "weir_stream_resets_dropped_total",
	"Published.Values":           "weir_published_values",
	"Published.Tombstones":       "weir_published_tombstones",
	"Published.Bytes":            "weir_published_bytes",
	"Published.Revision":         "weir_published_revision",
	"Published.Dropped":          "weir_published_dropped_total",
	"Snapshots.Age":              "weir_snapshot_age_seconds",
	"Snapshots.Error":            "weir_snapshot_failed", // as with JoinError
	"Snapshots.Took":             "weir_snapshot_seconds",
	"Snapshots.Bytes":            "weir_snapshot_bytes",
	"Snapshots.Counts":           "weir_snapshot_counts",
	"Snapshots.Saved":            "weir_snapshot_saved_total",
	"Snapshots.Failures":         "weir_snapshot_failures_total",
	"Snapshots.Loading":          "weir_snapshot_loading",
	"Snapshots.Loaded":           "weir_snapshot_loaded_counts",
	"Snapshots.LoadTook":         "weir_snapshot_load_seconds",
	"Snapshots.Refused":          "weir_snapshot_refused_total",
	"Snapshots.Skipped":          "weir_snapshot_skipped_total",
	"Snapshots.Foreign":          "weir_snapshot_foreign",
	"Holdings.Keys":              "weir_holdings",
	"Holdings.Beyond":            "weir_holdings_beyond_total",
	"Regions.some.Reached":       "weir_region_reached{region=some}",
	"Regions.some.Statements":    "weir_region_statements_total{region=some}",
	"Regions.some.Unanswered":    "weir_region_unanswered_total{region=some}",
	"Regions.some.Served":        "weir_region_served_total{region=some}",
	"Regions.some.Disputed":      "weir_region_disputed_total{region=some}",
	"Regions.some.Refused":       "weir_region_refused_total{region=some}",
	"Regions.some.Sent":          "weir_region_sent_bytes_total{region=some}",
	"Regions.some.Received":      "weir_region_received_bytes_total{region=some}",
	"Outage.Since":               "weir_outage_since_timestamp_seconds",
	"Outage.Missing":             "weir_outage_missing", // their names are for the log and the admin API
	"Outage.Decisions":           "weir_outage_decisions",
	"Outage.Count":               "weir_outages_total",
	"Unjoined":                   "weir_cluster_unjoined_seconds",
	"Cluster.Refused.some":       "weir_cluster_refused_total{reason=some}",
	"Cluster.Timeouts":           "weir_cluster_timeouts_total",
	"Cluster.Late":               "weir_cluster_late_total",
	"Cluster.Dropped":            "weir_cluster_dropped_total",
	"Cluster.JoinError":          "weir_cluster_join_failed", // its text is for the log and the admin API: a label of it would be unbounded
	"Cluster.JoinedCount":        "weir_cluster_join_reached",
	"Cluster.Unanswered.some":    "weir_cluster_join_unanswered", // as with JoinError
}

// exportedRules is the same of rules.BookStats.
var exportedRules = map[string]string{
	"Version":   "weir_rules_version",
	"Hash":      "weir_rules_info{hash=some}",
	"LoadedAt":  "weir_rules_loaded_timestamp_seconds",
	"Loads":     "weir_rules_loads_total",
	"Refused":   "weir_rules_refused_total",
	"LastError": "weir_rules_in_force",
	"Missing":   "weir_rules_missing",
	"Rules":     "weir_rules",
	"Limits":    "weir_rules_limits",
	"Overrides": "weir_rules_overrides",
}

// unexportedRules are left out, and why.
var unexportedRules = map[string]string{
	"Path":   "a path is the configuration's, and changes never",
	"Serial": "it counts changes of the file and of the overrides, which have metrics of their own",
}

func TestEveryFieldOfStatsHasItsSeries(t *testing.T) {
	var is metrics.NodeStats
	got := func() map[string]float64 {
		return series(t, registry(t, newFamilies(metrics.OfNode(), func() metrics.NodeStats { return is })))
	}
	found := make(map[string]bool)
	fields(t, reflect.ValueOf(&is.Stats).Elem(), "", func(path string, want float64) {
		found[path] = true
		name, ok := exported[path]
		require.True(t, ok, "weir.Stats.%s has no metric: add one, here and to docs/metrics.md, or say why not", path)
		require.Equal(t, map[string]float64{name: want}, nonzero(got()), path)
	})
	for path := range exported {
		require.True(t, found[path], "weir.Stats has no %s any more", path)
	}
}

func TestEveryFieldOfBookStatsHasItsSeriesOrAReason(t *testing.T) {
	var is rules.BookStats
	is.LoadedAt = time.Unix(0, 0)
	got := func() map[string]float64 {
		return series(t, registry(t, newFamilies(metrics.OfBook(), func() rules.BookStats { return is })))
	}
	zero := got()
	found := make(map[string]bool)
	fields(t, reflect.ValueOf(&is).Elem(), "", func(path string, want float64) {
		found[path] = true
		if _, ok := unexportedRules[path]; ok {
			require.NotContains(t, exportedRules, path)
			require.Equal(t, zero, got(), path)
			return
		}
		name, ok := exportedRules[path]
		require.True(t, ok, "rules.BookStats.%s has no metric: add one, here and to docs/metrics.md, or say why not", path)
		changed := got()
		for other, value := range zero {
			if changed[other] == value {
				delete(changed, other)
			}
		}
		if path == "LastError" {
			want = 0
		}
		require.Equal(t, map[string]float64{name: want}, changed, path)
	})
	for path := range exportedRules {
		require.True(t, found[path], "rules.BookStats has no %s any more", path)
	}
	for path := range unexportedRules {
		require.True(t, found[path], "rules.BookStats has no %s any more", path)
	}
}

// fields gives each field of v by itself a value, calls look with it as a metric
// has it, and takes it back.
func fields(t *testing.T, v reflect.Value, path string, look func(path string, want float64)) {
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
				fields(t, v.Field(i), below(f.Name), look)
			}
		}
	case reflect.Map:
		key := reflect.ValueOf("some")
		name := "some"
		if v.Type().Key() == reflect.TypeFor[weir.Source]() {
			key, name = reflect.ValueOf(weir.Owner), weir.Owner.String()
		}
		entry := reflect.New(v.Type().Elem()).Elem()
		fields(t, entry, below(name), func(path string, want float64) {
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(key, entry)
			look(path, want)
			v.SetZero()
		})
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint64 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fields(t, v.Index(0), below("some"), look)
			v.SetZero()
			return
		}
		set(reflect.MakeSlice(v.Type(), 3, 3).Interface(), 3)
	case reflect.Bool:
		set(true, 1)
	case reflect.String:
		set("some", 1)
	case reflect.Int, reflect.Int64, reflect.Uint64:
		set(1234567, 1234567)
	case reflect.Interface:
		set(errors.New("some"), 1)
	default:
		t.Fatalf("%s is a %v: say how it is filled", path, v.Type())
	}
}

// nonzero leaves out what is 0, and the series of the build, which no statistics fill.
func nonzero(values map[string]float64) map[string]float64 {
	for name, value := range values {
		if value == 0 || strings.HasPrefix(name, "weir_build_info{") {
			delete(values, name)
		}
	}
	return values
}

func TestEverySourceHasItsSeriesBeforeTheFirstDecision(t *testing.T) {
	zero := series(t, registry(t, newFamilies(metrics.OfNode(), func() metrics.NodeStats { return metrics.NodeStats{} })))
	n := 0
	for source := weir.Owner; source < 255; source++ {
		if source.String() == "unknown" {
			break
		}
		n++
		one := metrics.NodeStats{Stats: weir.Stats{Decisions: map[weir.Source]weir.Outcomes{source: {Allowed: 2, Denied: 3}}}}
		got := nonzero(series(t, registry(t, newFamilies(metrics.OfNode(), func() metrics.NodeStats { return one }))))
		require.Len(t, got, 2, source)
		for name := range got {
			require.Contains(t, zero, name)
		}
	}
	require.GreaterOrEqual(t, n, 7)
}

func TestTheReasonsOfRefusalsAreThoseOfTheCluster(t *testing.T) {
	text, err := os.ReadFile("../../cluster/refusals.go")
	require.NoError(t, err)
	var reasons []string
	for _, m := range regexp.MustCompile(`reason[A-Z]\w* += "(\w+)"`).FindAllStringSubmatch(string(text), -1) {
		reasons = append(reasons, m[1])
	}
	require.Equal(t, metrics.Refusals(), reasons)
}

func TestMembersAreCountedByState(t *testing.T) {
	is := metrics.NodeStats{Members: []weir.Member{{State: weir.Serving}, {State: weir.Dead}, {State: weir.Serving}, {State: weir.Joining}, {State: weir.Unheard}}}
	require.Equal(t, map[string]float64{
		"weir_cluster_members{state=serving}": 2, "weir_cluster_members{state=dead}": 1,
		"weir_cluster_members{state=joining}": 1, "weir_cluster_members{state=unheard}": 1,
	}, nonzero(series(t, registry(t, newFamilies(metrics.OfNode(), func() metrics.NodeStats { return is })))))
}

func TestANameThatIsNotUTF8DoesNotCostTheScrape(t *testing.T) {
	is := metrics.NodeStats{Stats: weir.Stats{Regions: map[string]weir.RegionStats{"\xff": {Sent: 1}, "\xfe": {Sent: 2}}}}
	got := series(t, registry(t, newFamilies(metrics.OfNode(), func() metrics.NodeStats { return is })))
	require.EqualValues(t, 1, got[`weir_region_sent_bytes_total{region="\xff"}`])
	require.EqualValues(t, 2, got[`weir_region_sent_bytes_total{region="\xfe"}`])
}
