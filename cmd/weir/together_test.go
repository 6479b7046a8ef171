package main

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/stats"
	"github.com/weir-go/weir/internal/testenv"
)

// A deployment starts and stops its replicas at the same moment. No member is missing
// then, unless the machine pauses a process. So a few rounds may have an outage.
func TestThreeProcessesStartAndStopTogether(t *testing.T) {
	t.Parallel()
	rounds := testenv.PickFull(t, 1, 20)
	outages, most := 0, max(1, rounds/10)
	for round, healthy := 0, rounds; healthy > 0; round++ {
		logs := startAndStop(t, round)
		if logs == "" {
			healthy--
			continue
		}
		outages++
		require.LessOrEqual(t, outages, most, "round %d has an outage, as others had:\n%s", round, logs)
		t.Logf("round %d is repeated, as it has an outage:\n%s", round, logs)
	}
}

// startAndStop starts three processes together and stops them together. It returns the
// logs of processes with an outage.
func startAndStop(t *testing.T, round int) (logs string) {
	t.Helper()
	const nodes = 3
	var addrs []string
	for range nodes {
		addrs = append(addrs, lab.FreeAddr(t))
	}
	dir := folder(t)
	begun := time.Now()
	var all []*process
	for _, addr := range addrs {
		p := &process{reached: reached{dir: dir}}
		p.Cmd = weirIn(t, dir, "serve", "-rules", "rules.yaml", "-shared", "shared", "-bind", addr, "-join", strings.Join(addrs, ","),
			"-expect", "3", "-checks", "127.0.0.1:0", "-admin", "", "-health", "127.0.0.1:0")
		p.Stderr = &p.out
		require.NoError(t, p.Start())
		t.Cleanup(func() { _ = p.Process.Kill() })
		all = append(all, p)
	}
	for _, p := range all {
		require.Eventually(t, func() bool {
			at := servesAt.FindStringSubmatch(p.out.String())
			if at == nil {
				return false
			}
			r, err := asker.Get("http://" + at[3] + "/ready")
			if err != nil {
				return false
			}
			_ = r.Body.Close()
			return r.StatusCode == http.StatusOK
		}, eventually, 5*time.Millisecond, "%s", &p.out)
	}
	started := time.Since(begun)
	begun = time.Now()
	for _, p := range all {
		require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	}
	var took []string
	for _, p := range all {
		err := p.Wait()
		took = append(took, fmt.Sprintf("%.2f s", time.Since(begun).Seconds()))
		if err != nil {
			t.Errorf("round %d: exit: %v\n%s", round, err, &p.out)
		}
		// Nodes that start or stop that far apart are missing for each other temporarily.
		if apart := max(started, time.Since(begun)); apart < stats.OutageQuiet && strings.Contains(p.out.String(), "outage") {
			logs += fmt.Sprintf("%s:\n%s", p.Args[1:], &p.out)
		}
	}
	t.Logf("round %d: all ready after %.2f s, ended after %s", round, started.Seconds(), strings.Join(took, ", "))
	return logs
}
