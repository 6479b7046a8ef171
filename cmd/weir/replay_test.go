package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/audit/replay"
)

func TestAuditReplayPrintsChangesOfOtherRules(t *testing.T) {
	dir := t.TempDir()
	in := func(name, text string) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	line := func(id, more string) string {
		return `{"time":"2026-12-01T00:00:00Z","node":"n","limit":"a","id":"` + strings.Repeat(id, 32) + `","key":"k\u001b` + id + `","units":1,"operation":"take","source":"owner","sample":1,` + more + "}\n"
	}
	rules := in("rules.yaml", "rules: [{name: a, key: user, limit: {rate: 1, per: 1h}}]")
	first, second := in("1.jsonl", line("1", `"allowed":true`)+line("2", `"allowed":true`)+"{\n"), in("2.jsonl", line("1", `"allowed":true`))
	var out, errs strings.Builder
	require.Equal(t, ok, run([]string{"audit", "replay", "-rules", rules, first, second}, &out, &errs), errs.String())
	for _, want := range []string{"3 records from 2026-12-01T00:00:00Z", "66.667 % of the decisions are as recorded", `"k\x1b1"`, "1 line damaged:", "1.jsonl:3: "} {
		require.Contains(t, out.String(), want)
	}
	require.NotContains(t, out.String(), "\x1b")

	out.Reset()
	require.Equal(t, ok, run([]string{"audit", "replay", "-json", "-rules", rules, first, second}, &out, &errs), errs.String())
	var report replay.Report
	require.NoError(t, json.Unmarshal([]byte(out.String()), &report))
	require.Equal(t, 1, report.Limits[0].NewlyDenied)

	require.Equal(t, bad, run([]string{"audit", "replay", "-rules", rules, "-until", "2026-11-01T00:00:00Z", first}, &out, &errs))
	require.Contains(t, errs.String(), "no record was decided again")
	require.Equal(t, usage, run([]string{"audit", "replay", first}, &out, &errs))
}
