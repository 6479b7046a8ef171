package weirprom

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/contrib/internal/metrics"
	"github.com/weir-go/weir/internal/snippets"
)

func TestDocumentedMetricsEqualExportedMetrics(t *testing.T) {
	file, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	text := string(file)
	var names []string
	all := namesOf(t, namesOf(t, namesOf(t, nil, metrics.OfNode()), metrics.OfBook()), metrics.OfRules())
	for _, m := range regexp.MustCompile("`(weir_\\w+(?:{[a-z,]+})?)`").FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	for _, name := range all {
		require.Contains(t, names, name)
	}
	for _, name := range regexp.MustCompile(`\bweir_\w+`).FindAllString(text, -1) {
		require.True(t, slices.ContainsFunc(all, func(named string) bool {
			return named == name || strings.HasPrefix(named, name+"{")
		}), "there is no %s", name)
	}
	values := valuesOf()
	for _, label := range slices.Concat(metrics.Refusals(), values["state"], values["source"]) {
		require.Contains(t, text, "`"+label+"`")
	}
}

// matcher matches a part of {label="value",label=~"value|value"}.
var matcher = regexp.MustCompile(`(\w+)(=~?)"([^"]*)"`)

// requireSelectable requires that the metrics of an expression have the selected labels
// and values. It returns the number of metrics.
func requireSelectable(t *testing.T, labels map[string][]string, where, expression string) int {
	values := valuesOf()
	metrics := regexp.MustCompile(`\b([\w:]*weir_[\w:]+)(?:\{([^}]*)\})?`).FindAllStringSubmatch(expression, -1)
	for _, m := range metrics {
		require.Contains(t, labels, m[1], where)
		for _, of := range matcher.FindAllStringSubmatch(m[2], -1) {
			if of[1] == "job" || of[1] == "instance" {
				continue
			}
			require.Contains(t, labels[m[1]], of[1], "%s: %s", where, m[0])
			for value := range strings.SplitSeq(of[3], "|") {
				require.Contains(t, values[of[1]], value, "%s: %s", where, m[0])
			}
		}
	}
	return len(metrics)
}

// allLabels returns the labels of each metric and of each recorded series.
func allLabels(t *testing.T) map[string][]string {
	labels := labelsOf(labelsOf(labelsOf(make(map[string][]string), metrics.OfNode()), metrics.OfBook()), metrics.OfRules())
	alerts, _ := texts(t)
	for _, name := range captures(`(?m)^ +- record: (\S+)$`, alerts) {
		labels[name] = []string{}
	}
	return labels
}

func TestExpressionsSelectExistingLabelsAndValues(t *testing.T) {
	labels := allLabels(t)
	all, err := snippets.All()
	require.NoError(t, err)
	documented := 0
	for _, s := range all {
		if s.Language == "promql" || s.Key() == "groups" {
			documented += requireSelectable(t, labels, s.Position(), s.Text)
		}
	}
	require.NotZero(t, documented)
	expressions := expressions(t)
	require.Greater(t, len(expressions), 40)
	for _, e := range expressions {
		require.NotZero(t, requireSelectable(t, labels, e, e), e)
	}
}

// valuesOf returns the values of the labels that have a fixed set of values.
func valuesOf() map[string][]string {
	values := map[string][]string{
		"outcome": {"allowed", "denied"}, "reason": append([]string{"disputed", "forbidden"}, metrics.Refusals()...),
		"mode": {"enforce", "shadow"}, "result": {"decided", "passed", "overdue"}, "direction": {"held", "lent", "returned", "debited", "sent", "received"},
		"event": {"made", "settled", "canceled", "carried", "unsettled"}, "kind": {"tally", "reset", "published", "holding", "timeout", "late", "dropped"},
		"operation": {"write", "load"}, "statistic": {"median", "max"},
	}
	for _, state := range metrics.States() {
		values["state"] = append(values["state"], state.String())
	}
	for source := weir.Owner; source.String() != "unknown"; source++ {
		values["source"] = append(values["source"], source.String())
	}
	return values
}

// labelsOf adds the labels of each metric to the map labels, by the name of the metric.
func labelsOf[S any](labels map[string][]string, all []metrics.Family[S]) map[string][]string {
	for _, f := range all {
		labels[f.Name] = f.Labels
		if f.Spread != nil {
			for _, part := range []string{"_sum", "_count", "_bucket"} {
				labels[f.Name+part] = f.Labels
			}
			labels[f.Name+"_bucket"] = append([]string{"le"}, f.Labels...)
		}
	}
	return labels
}

// namesOf appends the name of each family, with its labels, to the slice names. It requires that
// the name shows the kind of the metric, because docs/metrics.md relies on that.
func namesOf[S any](t *testing.T, names []string, all []metrics.Family[S]) []string {
	for _, f := range all {
		require.Equal(t, strings.HasSuffix(f.Name, "_total"), f.Kind == metrics.Counter && f.Spread == nil, f.Name)
		require.Equal(t, f.Name == "weir_check_seconds", f.Spread != nil, f.Name)
		name := f.Name
		if f.Labels != nil {
			name += "{" + strings.Join(f.Labels, ",") + "}"
		}
		names = append(names, name)
	}
	return names
}
