package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/audit"
)

// records are the lines of an audit file, each a whole record.
func records(t *testing.T, name string) (all []audit.Record) {
	t.Helper()
	file, err := os.Open(name)
	require.NoError(t, err)
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var r struct {
			audit.Record
			ID string `json:"id"`
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &r), "%s", lines.Text())
		all = append(all, r.Record)
	}
	return all
}

func TestDenialsAreRecordedAndNoneIsLostWhereTheFileIsRotatedUnderTraffic(t *testing.T) {
	dir := folder(t)
	p := start(t, dir, "-audit", "audit.log", "-audit_keys")
	name := func(i int) string { return filepath.Join(dir, fmt.Sprintf("audit.%d", i)) }
	const rotations, rounds = 3, 40
	denied := 0
	for i := range rotations * rounds {
		if i > 0 && i%rounds == 0 {
			require.NoError(t, os.Rename(filepath.Join(dir, "audit.log"), name(i/rounds)))
			before := strings.Count(p.out.String(), "opened again")
			require.NoError(t, p.Process.Signal(syscall.SIGHUP))
			require.Eventually(t, func() bool { return strings.Count(p.out.String(), "opened again") > before }, 30*time.Second, 10*time.Millisecond)
		}
		status, answer := p.post(t, "/v1/take", `{"limit":"api/hourly","key":"u"}`)
		require.Equal(t, http.StatusOK, status, answer)
		if !strings.Contains(answer, `"allowed":true`) {
			denied++
		}
	}
	require.Equal(t, rotations*rounds-60, denied)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.Wait())
	var all []audit.Record
	for i := 1; i < rotations; i++ {
		all = append(all, records(t, name(i))...)
	}
	last := records(t, filepath.Join(dir, "audit.log"))
	require.NotEmpty(t, last, "the new file has what came after it was opened")
	all = append(all, last...)
	require.Len(t, all, denied)
	for _, r := range all {
		require.Equal(t, "api/hourly", r.Limit)
		require.Equal(t, "u", r.Key)
		require.False(t, r.Allowed)
	}
	info, err := os.Stat(filepath.Join(dir, "audit.log"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestWhatBecameOfRecordsIsInTheMetrics(t *testing.T) {
	dir := folder(t)
	p := start(t, dir, "-audit", "audit.log", "-audit_sample", "1")
	status, answer := p.post(t, "/v1/take", `{"limit":"api/hourly","key":"secret key"}`)
	require.Equal(t, http.StatusOK, status, answer)
	require.Eventually(t, func() bool {
		_, metrics := get(t, "http://"+p.addrs["health"]+"/metrics")
		return strings.Contains(metrics, "weir_audit_records_total{fate=\"written\"} 1\n") &&
			strings.Contains(metrics, "weir_audit_records_total{fate=\"dropped\"} 0\n") && strings.Contains(metrics, "weir_audit_records_total{fate=\"failed\"} 0\n")
	}, 30*time.Second, 50*time.Millisecond)
	text, err := os.ReadFile(filepath.Join(dir, "audit.log"))
	require.NoError(t, err)
	require.NotContains(t, string(text), "secret key")
}
