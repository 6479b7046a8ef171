package weirprom

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/snippets"
)

func TestTheDocumentationHasEveryMetricAndNoOther(t *testing.T) {
	file, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	text := string(file)
	rows := rowsOf(rowsOf(rowsOf(nil, ofNode), ofBook), ofRules)
	slices.Sort(rows)
	documented := regexp.MustCompile("(?m)^\\| `weir_[^|]*\\|[^|]*").FindAllString(text, -1)
	for i := range documented {
		documented[i] = strings.TrimSpace(documented[i])
	}
	slices.Sort(documented)
	require.Equal(t, rows, documented)

	for _, name := range regexp.MustCompile(`\bweir_\w+`).FindAllString(text, -1) {
		require.True(t, slices.ContainsFunc(rows, func(row string) bool {
			return strings.HasPrefix(row, "| `"+name+"`") || strings.HasPrefix(row, "| `"+name+"{")
		}), "there is no %s", name)
	}
	labels := slices.Clone(refusals)
	for _, state := range states {
		labels = append(labels, state.String())
	}
	for source := weir.Owner; source.String() != "unknown"; source++ {
		labels = append(labels, source.String())
	}
	for _, label := range labels {
		require.Contains(t, text, "`"+label+"`")
	}
}

// matcher is one of {label="value",label=~"value|value"}.
var matcher = regexp.MustCompile(`(\w+)(=~?)"([^"]*)"`)

func TestEveryExpressionOfTheDocumentationSelectsLabelsAndValuesThatAreThere(t *testing.T) {
	all, err := snippets.All()
	require.NoError(t, err)
	labels := labelsOf(labelsOf(labelsOf(make(map[string][]string), ofNode), ofBook), ofRules)
	values := valuesOf()
	named := 0
	for _, s := range all {
		if s.Language != "promql" && s.Key() != "groups" {
			continue
		}
		for _, m := range regexp.MustCompile(`\b(weir_\w+)(?:\{([^}]*)\})?`).FindAllStringSubmatch(s.Text, -1) {
			named++
			require.Contains(t, labels, m[1], "%s", s.At())
			for _, of := range matcher.FindAllStringSubmatch(m[2], -1) {
				require.Contains(t, labels[m[1]], of[1], "%s: %s", s.At(), m[0])
				for value := range strings.SplitSeq(of[3], "|") {
					require.Contains(t, values[of[1]], value, "%s: %s", s.At(), m[0])
				}
			}
		}
	}
	require.NotZero(t, named)
}

// valuesOf is the values of the labels that have a fixed set of them.
func valuesOf() map[string][]string {
	values := map[string][]string{"outcome": {"allowed", "denied"}, "reason": refusals}
	for _, state := range states {
		values["state"] = append(values["state"], state.String())
	}
	for source := weir.Owner; source.String() != "unknown"; source++ {
		values["source"] = append(values["source"], source.String())
	}
	return values
}

// labelsOf adds the labels of each metric, by its name.
func labelsOf[S any](labels map[string][]string, all []family[S]) map[string][]string {
	for _, f := range all {
		labels[f.name] = f.labels
		if f.spread != nil {
			for _, part := range []string{"_sum", "_count", "_bucket"} {
				labels[f.name+part] = f.labels
			}
			labels[f.name+"_bucket"] = append([]string{"le"}, f.labels...)
		}
	}
	return labels
}

// rowsOf appends how the rows of families begin.
func rowsOf[S any](rows []string, all []family[S]) []string {
	for _, f := range all {
		name, kind := f.name, "gauge"
		if f.labels != nil {
			name += "{" + strings.Join(f.labels, ",") + "}"
		}
		switch {
		case f.spread != nil:
			kind = "histogram"
		case f.kind == prometheus.CounterValue:
			kind = "counter"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s", name, kind))
	}
	return rows
}
