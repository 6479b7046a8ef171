package weirprom

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/contrib/internal/metrics"
)

// texts returns the rules file for Prometheus and the dashboard for Grafana.
func texts(t *testing.T) (alerts, dashboard string) {
	t.Helper()
	rules, err := os.ReadFile("weir.rules.yaml")
	require.NoError(t, err)
	dash, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	return string(rules), string(dash)
}

// captures returns the text of the first group in each match of a pattern.
func captures(pattern, text string) (all []string) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// expressions returns the expressions of the rules and of the dashboard.
func expressions(t *testing.T) []string {
	t.Helper()
	alerts, dash := texts(t)
	all := captures(`(?m)^ +expr: (.*)$`, alerts)
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(dash), &dashboard))
	ids := make(map[int]bool)
	for _, p := range dashboard.Panels {
		require.False(t, ids[p.ID], "two panels have id %d", p.ID)
		require.NotEmpty(t, p.Title)
		ids[p.ID] = true
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	return all
}

// Each alert needs a section in the runbook, and each section an alert.
func TestEveryAlertHasRunbookSection(t *testing.T) {
	alerts, _ := texts(t)
	runbook, err := os.ReadFile("../../docs/runbook.md")
	require.NoError(t, err)
	named, urls := captures(`(?m)^ +- alert: (\w+)$`, alerts), captures(`runbook_url: \S+/docs/runbook\.md#(\w+)\n`, alerts)
	require.NotEmpty(t, named)
	require.Equal(t, named, captures(`(?m)^## (\w+)$`, string(runbook)))
	require.Len(t, captures(`(?m)^ +labels: \{severity: (page|ticket)\}$`, alerts), len(named))
	for i, name := range named {
		require.Equal(t, strings.ToLower(name), urls[i])
	}
}

// promtool runs Prometheus' own checker.
func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("there is no promtool on PATH: Debian has it in its package prometheus")
	}
	cmd := exec.CommandContext(t.Context(), tool, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "promtool %v: %s", args, out)
}

func TestPrometheusAcceptsRules(t *testing.T) {
	promtool(t, "", "check", "rules", "weir.rules.yaml")
}

func TestAlertsFireAsTheirTestsExpect(t *testing.T) {
	promtool(t, "", "test", "rules", filepath.Join("testdata", "weir.rules.test.yaml"))
}

// The number of series of a node depends only on its configuration. A limit is
// configured; a key and a member are not.
func TestNoMetricHasKeyAsLabel(t *testing.T) {
	configured, fixed := []string{"region", "hash", "limit", "le", "rule", "tier", "version", "goversion"}, valuesOf()
	for name, labels := range labelsOf(labelsOf(labelsOf(make(map[string][]string), metrics.OfNode()), metrics.OfBook()), metrics.OfRules()) {
		for _, label := range labels {
			require.True(t, fixed[label] != nil || slices.Contains(configured, label), "%s{%s}", name, label)
		}
	}
}
