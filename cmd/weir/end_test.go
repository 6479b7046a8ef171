package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weir-go/weir/snapshot"
)

func get(t *testing.T, url string) (status int, text string) {
	t.Helper()
	a, err := asker.Get(url)
	require.NoError(t, err)
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	return a.StatusCode, string(b)
}

// halfAsked is a check that the node has begun to read, and whose body has been sent except for the last byte.
type halfAsked struct {
	net.Conn
	in   *bufio.Reader
	rest string
}

func halfAsk(t *testing.T, addr, token string) *halfAsked {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	body := `{"limit":"api/hourly","key":"u"}`
	// The node responds with 100 Continue once it reads the body.
	head := fmt.Sprintf("POST /v1/take HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", token, len(body))
	_, err = io.WriteString(conn, head)
	require.NoError(t, err)
	h := &halfAsked{conn, bufio.NewReader(conn), body[len(body)-1:]}
	goesOn, err := http.ReadResponse(h.in, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusContinue, goesOn.StatusCode)
	_, err = io.WriteString(conn, body[:len(body)-1])
	require.NoError(t, err)
	return h
}

// endsChecks reports whether the node accepts no more checks.
func (p *reached) endsChecks() bool {
	c, err := net.Dial("tcp", p.addrs["checks"])
	if err == nil {
		c.Close()
	}
	return err != nil
}

func (h *halfAsked) answer(t *testing.T) *http.Response {
	t.Helper()
	_, err := io.WriteString(h, h.rest)
	require.NoError(t, err)
	a, err := http.ReadResponse(h.in, nil)
	require.NoError(t, err)
	a.Body.Close()
	return a
}

func TestPendingChecksAreAnsweredDuringLeave(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	p := start(t, dir, "-leave_within", "60s")
	conn, err := grpc.NewClient(p.addrs["envoy"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	watch, err := health.NewHealthClient(conn).Watch(t.Context(), &health.HealthCheckRequest{})
	require.NoError(t, err)
	is, err := watch.Recv()
	require.NoError(t, err)
	require.Equal(t, health.HealthCheckResponse_SERVING, is.Status)
	begun := time.Now()
	asked := halfAsk(t, p.addrs["checks"], checksToken)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	wait(t, func() bool { return strings.Contains(p.out.String(), "the node is leaving the cluster") })
	// The node waits for a second, because the incomplete check has just arrived.
	status, text, err := p.tryPost("/v1/take", `{"limit":"api/hourly","key":"v"}`)
	if took := time.Since(begun); took > 800*time.Millisecond {
		t.Logf("%v went by before a check could be asked meanwhile", took)
	} else {
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
		require.Regexp(t, decidedByAuthority, text, "it leaves only then")
	}
	wait(t, p.endsChecks) // the check port closes first
	status, text = get(t, "http://"+p.addrs["health"]+"/ready")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, "the node is leaving")
	status, _ = get(t, "http://"+p.addrs["health"]+"/live")
	require.Equal(t, http.StatusOK, status)
	_, err = health.NewHealthClient(conn).Check(t.Context(), &health.HealthCheckRequest{})
	require.NoError(t, err, "Envoy is answered while checks end")
	require.Equal(t, http.StatusOK, asked.answer(t).StatusCode)
	is, err = watch.Recv()
	require.NoError(t, err)
	require.Equal(t, health.HealthCheckResponse_NOT_SERVING, is.Status)
	require.NoError(t, p.Wait(), "it exits with 0: %s", &p.out)
}

func TestSecondSignalEndsLeaveEarly(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	p := start(t, dir, "-leave_within", "10m")
	halfAsk(t, p.addrs["checks"], checksToken)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	wait(t, func() bool { return strings.Contains(p.out.String(), "the node is leaving the cluster") })
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	var exit *exec.ExitError
	require.ErrorAs(t, p.Wait(), &exit)
	require.Equal(t, bad, exit.ExitCode())
	require.Contains(t, p.out.String(), "ended by a second signal")
}

func TestReloadUnderTrafficFailsNoCheck(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	p := begin(t, insecure.NewCredentials(), dir)
	var stop atomic.Bool
	failed := make(chan string, 1)
	go func() {
		defer close(failed)
		for i := 0; !stop.Load(); i++ {
			status, answer := p.post(t, "/v1/take", fmt.Sprintf(`{"limit":"api/hourly","key":"%d"}`, i))
			if status != http.StatusOK || !strings.Contains(answer, `"allowed":true`) {
				failed <- answer
				return
			}
		}
	}()
	defer func() {
		stop.Store(true)
		require.Empty(t, <-failed)
	}()
	for _, rate := range []int{61, 62, 63} {
		text := strings.ReplaceAll(someRules, "rate: 60", fmt.Sprint("rate: ", rate))
		next := filepath.Join(dir, "next.yaml")
		require.NoError(t, os.WriteFile(next, []byte(text), 0o600))
		require.NoError(t, os.Rename(next, filepath.Join(dir, "rules.yaml")))
		wait(t, func() bool {
			_, answer := p.post(t, "/v1/take", `{"limit":"api/hourly","key":"once"}`)
			return strings.Contains(answer, fmt.Sprintf(`"limit":%d,`, rate))
		})
	}
}

func TestChecksBehindCertificatesNeedOne(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	f := certified(t)
	p := begin(t, insecure.NewCredentials(), dir, "-http_tls", f.Cert+","+f.Key+","+f.CA)
	config, err := f.mutualConfig()
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	ask := func(c *http.Client) (*http.Response, error) {
		r, err := http.NewRequest(http.MethodPost, "https://"+p.addrs["checks"]+"/v1/take", strings.NewReader(`{"limit":"api/hourly","key":"u"}`))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+checksToken)
		r.Header.Set("Content-Type", "application/json")
		return c.Do(r)
	}
	a, err := ask(client)
	require.NoError(t, err)
	a.Body.Close()
	require.Equal(t, http.StatusOK, a.StatusCode)
	nameless := config.Clone()
	nameless.Certificates, nameless.GetClientCertificate = nil, nil
	_, err = ask(&http.Client{Transport: &http.Transport{TLSClientConfig: nameless}})
	require.ErrorContains(t, err, "certificate required")
}

// A stopped member does not respond to a hand-over.
func TestFrozenMemberLeavesTimeForPendingChecks(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	a := start(t, dir, "-name", "a", "-leave_within", "60s", "-timeout", "20ms") // Leave has 48s, and responses have 9s more
	b := start(t, dir, "-name", "b", "-join", a.addr(t))
	waitReady(t, a, b)
	for i := range 20 { // when node a leaves, it must hand some of these counts over to b
		status, _ := a.post(t, "/v1/take", fmt.Sprintf(`{"limit":"api/hourly","key":"%d"}`, i))
		require.Equal(t, http.StatusOK, status)
	}
	asked := halfAsk(t, a.addrs["checks"], checksToken)
	require.NoError(t, b.Process.Signal(syscall.SIGSTOP))
	var state syscall.WaitStatus // other threads run until the signalled thread stops
	_, err := syscall.Wait4(b.Process.Pid, &state, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	require.True(t, state.Stopped())
	require.NoError(t, a.Process.Signal(syscall.SIGTERM))
	wait(t, a.endsChecks) // node a has left, or the time for Leave has ended
	require.Equal(t, http.StatusOK, asked.answer(t).StatusCode)
	var exit *exec.ExitError
	require.ErrorAs(t, a.Wait(), &exit, "counts were not handed over")
	require.Equal(t, bad, exit.ExitCode())
}

func TestHangingDiskDoesNotBlockEnd(t *testing.T) {
	t.Parallel()
	dir, err := snapshot.OpenDir(t.TempDir(), snapshot.DirOptions{})
	require.NoError(t, err)
	hangs, over, saved := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		saved <- dir.Save(t.Context(), "a", func(io.Writer) error { close(hangs); <-over; return nil })
	}()
	<-hangs
	require.ErrorContains(t, closeDirectory(dir), "-snapshots: the disk does not answer")
	close(over)
	require.NoError(t, <-saved)
	require.NoError(t, closeDirectory(dir))
}
