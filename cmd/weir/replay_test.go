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
	require.Regexp(t, `(?m)^a +3 +0 +2 +1 +1 +0$`, out.String())
	require.Regexp(t, `(?m)^"k\\x1b1" +1 +0$`, out.String())

	require.Equal(t, bad, run([]string{"audit", "replay", "-rules", rules, first}, full{}, &errs))
	require.Contains(t, errs.String(), "no space left on device")

	out.Reset()
	require.Equal(t, ok, run([]string{"audit", "replay", "-json", "-rules", rules, first, second}, &out, &errs), errs.String())
	var report replay.Report
	require.NoError(t, json.Unmarshal([]byte(out.String()), &report))
	l := report.Limits[0]
	require.Equal(t, []any{replay.Counts{Allowed: 3}, replay.Counts{Allowed: 2, Denied: 1}, 1, 0}, []any{l.Recorded, l.Replayed, l.NewlyDenied, l.NewlyAllowed})
	require.Equal(t, usage, run([]string{"audit", "replay", first}, &out, &errs))
}

func TestAuditReplayWithoutDecisionsFails(t *testing.T) {
	dir := t.TempDir()
	rules, records := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "records.jsonl")
	require.NoError(t, os.WriteFile(rules, []byte("rules: [{name: b, key: user, limit: {rate: 1, per: 1h}}]"), 0o600))
	const line = `{"time":"2026-12-01T00:00:00Z","node":"n","limit":"a","id":"11111111111111111111111111111111","units":1,"operation":"take","allowed":true,"source":"owner","sample":1}`
	for _, c := range []struct{ text, until, want string }{
		{"", "", "0 records\n"},
		{line, "", "1 record\n1 of a limit that the rules do not have, or of an overrun: ignored\n"},
		{line, "2026-12-01T00:00:00Z", "1 record\n1 outside of the chosen time: ignored\n"},
	} {
		require.NoError(t, os.WriteFile(records, []byte(c.text), 0o600))
		args := []string{"audit", "replay", "-rules", rules, records}
		if c.until != "" {
			args = append(args, "-until", c.until)
		}
		var out, errs strings.Builder
		require.Equal(t, bad, run(args, &out, &errs))
		require.Equal(t, c.want, out.String())
		require.Contains(t, errs.String(), "no record was decided again")

		out.Reset()
		require.Equal(t, bad, run(append(args, "-json"), &out, &errs))
		require.Contains(t, out.String(), `"limits": []`)
		require.NotContains(t, out.String(), "0001")
	}
}
