package main

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weir-go/weir"
)

func TestRaiseCommandsListAndAccept(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte("rules:\n- {name: api, key: user, limit: {rate: 2, per: 1m}, raise: {}, adapt: {latency: 1s}}\n"), 0o600))
	p := begin(t, insecure.NewCredentials(), dir)
	l, err := p.node.Limiter(weir.Limit{Name: "api", Rate: 2, Per: time.Minute, Varies: true})
	require.NoError(t, err)
	raw := l.ID("k")
	id, now := hex.EncodeToString(raw[:]), time.Now().UTC().Truncate(time.Second)
	at := func(d time.Duration) string { return now.Add(d).Format(time.RFC3339) }
	require.NoError(t, p.node.Publish("hot/api/"+id, 0, fmt.Appendf(nil, `{"denied":0.75,"since":%q,"rate":4,"at":%q,"until":%q}`, at(-time.Hour), at(0), at(10*time.Minute))))
	require.NoError(t, p.node.Publish("adapt/api", 0, []byte(`{"factor":0.5,"reason":"slow","at":"2025-11-30T08:00:00Z"}`)))
	require.Eventually(t, func() bool {
		_, out := p.ask("raise", "list")
		return strings.Contains(out, id)
	}, eventually, 10*time.Millisecond)
	p.expect(t, []call{
		{`(?m)^api +- +` + id + ` +75 % +20.* +1 per 1m, .* +4$`, ok, []string{"raise", "list"}},
		{`\nadapt: api has 50 % of its numbers since 2025-11-30T08:00:00Z \(slow\)\n`, ok, []string{"status"}},
		{"until", bad, []string{"raise", "accept", "api", id, "-reason", "a launch"}},
		{"-for is -1h", usage, []string{"raise", "accept", "api", id, "-for=-1h", "-reason", "a launch"}},
		{"an override with a rate of 4 is in force until 20", ok, []string{"raise", "accept", "api", id, "-for", "1h", "-reason", "a launch"}},
	})
}

func TestExplainedRuleShowsAdaptAndRaise(t *testing.T) {
	code, out, errs := runWeir(t, "rules: [{name: r, key: ip, limit: {rate: 2, per: 1m}, adapt: {latency: 200ms, min: 10%}, raise: {}}]\n", "rules", "check", "FILE", "-request", "GET /", "-ip", "192.0.2.1")
	require.Equal(t, ok, code, errs)
	require.Contains(t, out, "\n  adapt: 10% to 100%: at most 5% slower than 200ms, and 5% failed\n  raise: up to 2 times for keys of which 10% is denied for 5m\n")
}
