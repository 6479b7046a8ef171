package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials/insecure"

	weirnode "github.com/weir-go/weir"
	"github.com/weir-go/weir/audit"
)

// records returns the lines of an audit file, each of which must be a whole record.
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

func TestRotationUnderTrafficLosesNoDenials(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	p := start(t, dir, "-audit", "audit.log", "-audit_keys")
	name := func(i int) string { return filepath.Join(dir, fmt.Sprintf("audit.%d", i)) }
	const rotations = 3
	var denied atomic.Int64
	over, stop := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for range 2 {
		asking.Go(func() {
			for over.Err() == nil {
				if _, answer := p.post(t, "/v1/take", `{"limit":"api/hourly","key":"u"}`); strings.Contains(answer, `"allowed":false`) {
					denied.Add(1)
				}
			}
		})
	}
	for i := 1; i <= rotations; i++ {
		begun := denied.Load()
		wait(t, func() bool { return denied.Load() > begun+20 })
		require.NoError(t, os.Rename(filepath.Join(dir, "audit.log"), name(i)))
		before := strings.Count(p.out.String(), "opened again")
		require.NoError(t, p.Process.Signal(syscall.SIGHUP))
		wait(t, func() bool { return strings.Count(p.out.String(), "opened again") > before })
	}
	begun := denied.Load()
	wait(t, func() bool { return denied.Load() > begun+20 })
	stop()
	asking.Wait()
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.Wait())
	var all []audit.Record
	for i := 1; i <= rotations; i++ {
		all = append(all, records(t, name(i))...)
	}
	last := records(t, filepath.Join(dir, "audit.log"))
	require.NotEmpty(t, last, "the new file has what came after it was opened")
	all = append(all, last...)
	require.Len(t, all, int(denied.Load()))
	for _, r := range all {
		require.Equal(t, "api/hourly", r.Limit)
		require.Equal(t, "u", r.Key)
		require.False(t, r.Allowed)
	}
	info, err := os.Stat(filepath.Join(dir, "audit.log"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

// deny makes a single check of a key, which is denied.
func deny(t *testing.T, p *reached, key string) {
	t.Helper()
	status, answer := p.post(t, "/v1/take", fmt.Sprintf(`{"limit":"api/hourly","key":%q,"units":60}`, key))
	require.Equal(t, http.StatusOK, status, answer)
	require.Contains(t, answer, `"allowed":true`)
	status, answer = p.post(t, "/v1/take", fmt.Sprintf(`{"limit":"api/hourly","key":%q}`, key))
	require.Equal(t, http.StatusOK, status, answer)
	require.Contains(t, answer, `"allowed":false`)
}

func TestRecordsFollowIncompleteLineAndAreCounted(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	file := filepath.Join(dir, "audit.log")
	require.NoError(t, os.WriteFile(file, []byte(`{"time":"2026-`), 0o600))
	p := begin(t, insecure.NewCredentials(), dir, "-audit", file)
	deny(t, &p.reached, "secret key")
	wait(t, func() bool {
		_, metrics := get(t, "http://"+p.addrs["health"]+"/metrics")
		return strings.Contains(metrics, "weir_audit_records_total{fate=\"written\"} 1\n") &&
			strings.Contains(metrics, "weir_audit_records_total{fate=\"dropped\"} 0\n") && strings.Contains(metrics, "weir_audit_records_total{fate=\"failed\"} 0\n")
	})
	p.stop()
	require.NoError(t, <-p.done)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	require.Len(t, lines, 3)
	require.True(t, json.Valid([]byte(lines[1])), lines[1])
	require.NotContains(t, lines[1], "secret key")
	require.Empty(t, lines[2])
}

func TestCutLineDoesNotContinueInNextFile(t *testing.T) {
	t.Parallel()
	f := &auditFile{name: filepath.Join(t.TempDir(), "audit.log")}
	require.NoError(t, f.open())
	defer f.close()
	for _, c := range []struct{ text, holds string }{{"\na\n", "a\n"}, {"\nb\n", "a\n\nb\n"}} {
		n, err := f.Write([]byte(c.text))
		require.NoError(t, err)
		require.Equal(t, len(c.text), n)
		text, err := os.ReadFile(f.name)
		require.NoError(t, err)
		require.Equal(t, c.holds, string(text))
	}
}

func TestClosedStandardOutputDoesNotEndProcess(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	reads, writes, err := os.Pipe()
	require.NoError(t, err)
	p := startWith(t, dir, func(p *process) { p.Stdout = writes }, "-audit", auditStdout)
	require.NoError(t, writes.Close())
	require.NoError(t, reads.Close())
	deny(t, &p.reached, "u")
	wait(t, func() bool {
		_, metrics := get(t, "http://"+p.addrs["health"]+"/metrics")
		return strings.Contains(metrics, "weir_audit_records_total{fate=\"failed\"} 1\n")
	})
	wait(t, func() bool { return strings.Contains(p.out.String(), "audit records were lost") }) // the node counts lost records before it logs them
	require.NoError(t, p.Process.Signal(syscall.SIGHUP))                                        // there is no file to reopen
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.Wait(), "%s", &p.out)
}

func TestHangingAuditFileDoesNotBlockEnd(t *testing.T) {
	t.Parallel()
	a, err := openAudit(auditFlags{Audit: filepath.Join(t.TempDir(), "audit.log")}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	node, err := weirnode.Start(t.Context(), weirnode.Config{Observer: a.Log, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	l, err := node.Limiter(weirnode.Limit{Name: "l", Rate: 1, Per: time.Hour})
	require.NoError(t, err)
	a.file.mu.Lock() // like a Write that does not return
	for range 2 {
		_, err = l.Allow(t.Context(), "k")
		require.NoError(t, err)
	}
	require.NoError(t, node.Close())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = a.close(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "-audit: "+a.file.name)
	a.file.mu.Unlock()
	<-a.done
	require.NoError(t, a.file.close())
}
