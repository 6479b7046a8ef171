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
)

func TestTheDocumentationHasEveryMetricAndNoOther(t *testing.T) {
	file, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	text := string(file)
	rows := rowsOf(rowsOf(nil, ofNode), ofBook)
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

// rowsOf appends how the rows of families begin.
func rowsOf[S any](rows []string, all []family[S]) []string {
	for _, f := range all {
		name, kind := f.name, "gauge"
		if f.labels != nil {
			name += "{" + strings.Join(f.labels, ",") + "}"
		}
		if f.kind == prometheus.CounterValue {
			kind = "counter"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s", name, kind))
	}
	return rows
}
