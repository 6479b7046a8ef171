package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weir-go/weir/internal/lab"
)

// askedNode is a fake node that records its requests and responds as configured.
type askedNode struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []string
	bodies []map[string]any
	answer func(path string, n int) (status int, text string) // returns the response to the nth request for a path, counted from 1
}

const heldAll = `{"allowed":true,"limit":2,"remaining":1,"source":"owner","hold":"sealed"}`

func newAskedNode(t *testing.T, answer func(path string, n int) (int, string)) *askedNode {
	h := &askedNode{answer: answer}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		h.mu.Lock()
		h.asked, h.bodies = append(h.asked, r.URL.Path), append(h.bodies, body)
		n := 0
		for _, path := range h.asked {
			if path == r.URL.Path {
				n++
			}
		}
		h.mu.Unlock()
		status, text := http.StatusNoContent, ""
		if h.answer != nil {
			status, text = h.answer(r.URL.Path, n)
		}
		if r.URL.Path == "/v1/hold" && text == "" {
			status, text = http.StatusOK, heldAll
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *askedNode) questions() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.asked)
}

// runShell runs weir hold with a shell script as the command.
func (h *askedNode) runShell(t *testing.T, script string, flags ...string) (code int, stdout, stderr string) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip(err)
	}
	var out, errs lab.Text // the command writes to it, too
	args := append(append([]string{"hold", "-admin", h.URL}, flags...), "exports", "alice", "--", "sh", "-c", script)
	code = run(args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestHoldCommandRunsChildAndReleases(t *testing.T) {
	t.Parallel()
	h := newAskedNode(t, nil)
	code, stdout, stderr := h.runShell(t, "echo out; echo err >&2; exit 7", "-units", "2", "-tier", "paid")
	require.Equal(t, []any{7, "out\n", "err\n"}, []any{code, stdout, stderr})
	require.Equal(t, []string{"/v1/hold", "/v1/release"}, h.questions())
	require.Equal(t, map[string]any{"limit": "exports", "key": "alice", "tier": "paid", "units": 2.0, "ttl": "30s"}, h.bodies[0])
	require.Equal(t, map[string]any{"limit": "exports", "key": "alice", "tier": "paid", "hold": "sealed"}, h.bodies[1])

	code, _, _ = h.runShell(t, "kill -TERM $$")
	require.Equal(t, 128+int(syscall.SIGTERM), code)
	require.Equal(t, "/v1/release", h.questions()[3])
}

func TestHoldCommandRunsNoChildWithoutUnits(t *testing.T) {
	t.Parallel()
	denial := `{"allowed":false,"limit":2,"remaining":0,"source":"owner","retry_after_s":1}`
	h := newAskedNode(t, func(string, int) (int, string) { return 200, denial })
	code, stdout, stderr := h.runShell(t, "echo ran")
	require.Equal(t, []any{denied, "", "denied: 0 of 2 left, by owner, retry after 1 s\n"}, []any{code, stdout, stderr})
	require.Equal(t, []string{"/v1/hold"}, h.questions())

	h = newAskedNode(t, func(string, int) (int, string) { return 400, `{"detail":"exports is no in-flight limit"}` })
	code, stdout, stderr = h.runShell(t, "echo ran")
	require.Equal(t, []any{bad, "", "weir hold: exports is no in-flight limit\n"}, []any{code, stdout, stderr})

	var out, errs bytes.Buffer
	require.Equal(t, notFound, run([]string{"hold", "-admin", h.URL, "a", "b", "--", "no-such-command-of-this-test"}, &out, &errs))
	require.Len(t, h.questions(), 1, "nothing is held for what cannot run")
	require.Equal(t, usage, run([]string{"hold", "a", "b", "sh"}, &out, &errs))
	require.Contains(t, errs.String(), "put -- before the command")
}

func TestHoldWaitsForUnits(t *testing.T) {
	t.Parallel()
	h := newAskedNode(t, func(path string, n int) (int, string) {
		if path == "/v1/hold" && n == 1 {
			return 200, `{"allowed":false,"limit":2,"source":"owner","retry_after_s":1}`
		}
		return 204, ""
	})
	code, stdout, stderr := h.runShell(t, "echo ran", "-wait", "1h")
	require.Equal(t, []any{ok, "ran\n", ""}, []any{code, stdout, stderr})
	require.Equal(t, []string{"/v1/hold", "/v1/hold", "/v1/release"}, h.questions())
}

// A shadow without room holds nothing and denies nothing. The same is true for rules that
// are switched off.
func TestHoldCommandRunsChildDuringShadow(t *testing.T) {
	t.Parallel()
	h := newAskedNode(t, func(string, int) (int, string) { return 200, `{"allowed":true,"limit":2,"source":"none"}` })
	code, stdout, _ := h.runShell(t, "echo ran")
	require.Equal(t, []any{ok, "ran\n"}, []any{code, stdout})
	require.Equal(t, []string{"/v1/hold"}, h.questions())
}

// answers is a fake node that returns the status of each renewal in turn, and repeats the
// last status.
type answers []int

const hangs = 0 // no response

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	status := (*a)[0]
	if len(*a) > 1 {
		*a = (*a)[1:]
	}
	if status == hangs {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: status, Body: http.NoBody}, nil
}

func TestHoldIsRenewedUntilItIsLost(t *testing.T) {
	for _, c := range []struct {
		about   string
		answers answers
		renewed time.Duration // start of the last successful renewal
		lost    time.Duration // time at which the hold is lost; 0 if it is not lost
	}{
		{"a node that answers", answers{204}, 60 * time.Second, 0},
		{"one that fails twice", answers{503, 503, 204}, 56 * time.Second, 0}, // renewals at 10, 13, 16, 26, ... seconds
		{"a hold that is over", answers{204, 410}, 10 * time.Second, 20 * time.Second},
		{"a node that fails", answers{204, 503}, 10 * time.Second, 40 * time.Second},
		{"one that hangs", answers{204, hangs}, 10 * time.Second, 40 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			h := &held{client: &client{base: "http://weir", http: http.Client{Transport: &c.answers}}, ttl: 30 * time.Second, renewed: begun}
			h.count.Hold = "sealed"
			ctx, cancel := context.WithTimeout(t.Context(), 65*time.Second)
			defer cancel()
			err := h.keep(ctx, nil, nil)
			require.Equal(t, c.renewed, h.renewed.Sub(begun), c.about)
			if c.lost == 0 {
				require.NoError(t, err, c.about)
				require.Error(t, ctx.Err(), c.about)
				return
			}
			require.Error(t, err, c.about)
			require.Equal(t, c.lost, time.Since(begun), c.about)
		})
	}
}

func TestLostHoldEndsCommandOnlyOnRequest(t *testing.T) {
	t.Parallel()
	gone := func(path string, n int) (int, string) {
		if path == "/v1/renew" {
			return 410, `{"detail":"the hold is over"}`
		}
		return 204, ""
	}
	h := newAskedNode(t, gone)
	code, _, stderr := h.runShell(t, "exec sleep 600", "-ttl", "3s", "-stop_if_lost")
	require.Equal(t, 128+int(syscall.SIGTERM), code)
	require.Contains(t, stderr, "weir hold: the hold is lost: ")

	h = newAskedNode(t, gone)
	var out, errs lab.Text
	told := filepath.Join(t.TempDir(), "told")
	ended := make(chan int, 1)
	go func() {
		ended <- run([]string{"hold", "-admin", h.URL, "-ttl", "3s", "exports", "alice", "--", "sh", "-c", "while ! [ -e " + told + " ]; do sleep 0.05; done; echo done"}, &out, &errs)
	}()
	require.Eventually(t, func() bool { return strings.Contains(errs.String(), "the hold is lost") }, eventually, time.Millisecond)
	require.NoError(t, os.WriteFile(told, nil, 0o600))
	require.Equal(t, []any{ok, "done\n"}, []any{<-ended, out.String()})
}

func TestHoldCommandForwardsSignals(t *testing.T) {
	t.Parallel()
	h := newAskedNode(t, nil)
	out := new(lab.Text)
	c := weirIn(t, t.TempDir(), "hold", "-admin", h.URL, "exports", "alice", "--", "sh", "-c", `trap 'echo told; exit 5' TERM; echo runs; while :; do sleep 0.05; done`)
	c.Stdout = out
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill() })
	require.Eventually(t, func() bool { return out.String() == "runs\n" }, eventually, time.Millisecond)
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	require.Error(t, c.Wait())
	require.Equal(t, []any{5, "runs\ntold\n"}, []any{c.ProcessState.ExitCode(), out.String()})
	require.Equal(t, []string{"/v1/hold", "/v1/release"}, h.questions())
}

func TestNodeGrantsHoldsToCommands(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(`
rules:
- {name: exports, key: user, limit: {algorithm: in_flight, rate: 2}}
`), 0o600))
	p := begin(t, insecure.NewCredentials(), dir)
	told, ended := filepath.Join(t.TempDir(), "told"), make(chan string, 1)
	go func() {
		code, out := p.ask("hold", "-units", "2", "exports", "alice", "--", "sh", "-c", "while ! [ -e "+told+" ]; do sleep 0.05; done; exit 9")
		ended <- fmt.Sprint(code, out)
	}()
	wait(t, func() bool { code, _ := p.ask("peek", "exports", "alice"); return code == denied }, "it is never held")
	code, out := p.ask("hold", "exports", "alice", "--", "true")
	require.Equal(t, denied, code, out)
	code, out = p.ask("hold", "exports", "bob", "--", "true")
	require.Equal(t, ok, code, out)
	require.NoError(t, os.WriteFile(told, nil, 0o600))
	require.Equal(t, "9", <-ended)
	wait(t, func() bool {
		code, _ := p.ask("hold", "-units", "2", "exports", "alice", "--", "true")
		return code == ok
	}, "it is never released")
}

func TestReserveAndSettleCommandsUseText(t *testing.T) {
	t.Parallel()
	h := newAskedNode(t, func(path string, n int) (int, string) {
		switch {
		case path == "/v1/reserve" && n == 2:
			return 200, `{"allowed":false,"limit":100,"remaining":10,"source":"owner","retry_after_s":9}`
		case path == "/v1/reserve":
			return 200, `{"allowed":true,"limit":100,"remaining":10,"source":"owner","reservation":"sealed"}`
		case n == 2:
			return 409, `{"detail":"it is settled already"}`
		}
		return 204, ""
	})
	told := func(args ...string) (code int, stdout, stderr string) {
		var out, errs bytes.Buffer
		code = run(append([]string{args[0], "-admin", h.URL}, args[1:]...), &out, &errs)
		return code, out.String(), errs.String()
	}
	for _, c := range []struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{[]string{"reserve", "tokens", "alice", "-units", "90"}, ok, "sealed\n", "reserved: 10 of 100 left, by owner\n"},
		{[]string{"reserve", "tokens", "alice"}, denied, "", "denied: 10 of 100 left, by owner, retry after 9 s\n"},
		{[]string{"settle", "tokens", "alice", "sealed", "12"}, ok, "", ""},
		{[]string{"settle", "tokens", "alice", "sealed", "12"}, bad, "", "weir settle: it is settled already\n"},
		{[]string{"settle", "tokens", "alice", "", "12"}, ok, "", ""},
	} {
		code, stdout, stderr := told(c.args...)
		require.Equal(t, []any{c.code, c.stdout, c.stderr}, []any{code, stdout, stderr}, "%q", c.args)
	}
	require.Equal(t, map[string]any{"limit": "tokens", "key": "alice", "tier": "", "units": 90.0}, h.bodies[0])
	require.Equal(t, map[string]any{"limit": "tokens", "key": "alice", "tier": "", "reservation": "sealed", "units": 12.0}, h.bodies[2])
	require.Len(t, h.questions(), 4, "an empty reservation settles nothing")
}
