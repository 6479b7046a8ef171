package main

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// asWeir has the test's own binary be the command.
const asWeir = "WEIR_TEST_AS_WEIR"

func TestMain(m *testing.M) {
	if os.Getenv(asWeir) != "" {
		main()
	}
	os.Exit(m.Run())
}

// process is a weir serve of its own.
type process struct {
	*exec.Cmd
	dir   string
	addrs map[string]string
	out   lockedBuffer
}

// lockedBuffer may be read while it is written to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

const (
	adminToken  = "0123456789abcdef0123456789abcdef"
	checksToken = "fedcba9876543210fedcba9876543210"
	someRules   = `
version: 1
rules:
- name: api
  key: user
  limits:
  - {name: hourly, algorithm: fixed_window, rate: 60, per: 1h}
`
)

// weirIn is the command, in a folder with all files that it needs.
func weirIn(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.Command(self, args...)
	c.Dir, c.Env = dir, append(os.Environ(), asWeir+"=1")
	return c
}

func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"rules.yaml": someRules, "admin": adminToken + "\n", "checks": checksToken + "\n",
		"shared":     "secret: 000102030405060708090a0b0c0d0e0f\nseed: 000102030405060708090a0b0c0d0e0f\n",
		"envoy.yaml": "domain: d\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1000}}]",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// servesAt is the line that says where it serves.
var servesAt = regexp.MustCompile(`msg=serving checks=(\S+) admin=(\S+) health=(\S+) envoy=(\S+)`)

func start(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	return startWith(t, dir, func(*process) {}, args...)
}

// startWith is start, of a process that set has prepared.
func startWith(t *testing.T, dir string, set func(p *process), args ...string) *process {
	t.Helper()
	all := append([]string{"serve", "-rules", "rules.yaml", "-shared", "shared", "-bind", "127.0.0.1:0", "-checks", "127.0.0.1:0", "-checks_tokens", "checks",
		"-admin", "127.0.0.1:0", "-admin_tokens", "admin", "-health", "127.0.0.1:0", "-envoy", "127.0.0.1:0", "-envoy_config", "envoy.yaml", "-timeout", "5s"}, args...)
	p := &process{Cmd: weirIn(t, dir, all...), dir: dir, addrs: make(map[string]string)}
	p.Stderr = &p.out
	set(p)
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
		if t.Failed() {
			t.Logf("%v:\n%s", p.Args[1:], &p.out)
		}
	})
	require.Eventually(t, func() bool { return servesAt.MatchString(p.out.String()) }, 30*time.Second, 10*time.Millisecond, "it does not serve")
	found := servesAt.FindStringSubmatch(p.out.String())
	for i, name := range []string{"checks", "admin", "health", "envoy"} {
		p.addrs[name] = found[i+1]
	}
	return p
}

// ask runs a command of the client against it.
func (p *process) ask(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	c := weirIn(t, p.dir, append(args, "-admin", "http://"+p.addrs["admin"], "-token_file", "admin")...)
	text, err := c.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		require.NoError(t, err)
	}
	return c.ProcessState.ExitCode(), string(text)
}

// post asks the check API.
func (p *process) post(t *testing.T, path, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, "http://"+p.addrs["checks"]+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+checksToken)
	r.Header.Set("Content-Type", "application/json")
	a, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	return a.StatusCode, string(text)
}

func (p *process) ready() bool {
	a, err := http.Get("http://" + p.addrs["health"] + "/ready")
	if err != nil {
		return false
	}
	a.Body.Close()
	return a.StatusCode == http.StatusOK
}

func allReady(ps ...*process) func() bool {
	return func() bool {
		for _, p := range ps {
			if !p.ready() {
				return false
			}
		}
		return true
	}
}

var boundTo = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// addr is where its members dial it, as it says itself.
func (p *process) addr(t *testing.T) string {
	t.Helper()
	code, out := p.ask(t, "status", "-json")
	require.Equal(t, ok, code, out)
	return boundTo.FindString(out)
}

func TestProcessesShareOneCountHoweverTheyAreAsked(t *testing.T) {
	dir := folder(t)
	a := start(t, dir, "-name", "a")
	b := start(t, dir, "-name", "b", "-join", a.addr(t))
	c := start(t, dir, "-name", "c", "-join", a.addr(t))
	require.Eventually(t, allReady(a, b, c), 60*time.Second, 20*time.Millisecond)

	admitted := 0
	for i := range 90 {
		switch p := []*process{a, b, c}[i%3]; i % 2 {
		case 0:
			status, answer := p.post(t, "/v1/take", `{"limit":"api/hourly","key":"u"}`)
			require.Equal(t, http.StatusOK, status, answer)
			if strings.Contains(answer, `"allowed":true`) {
				admitted++
			}
		default:
			status, answer := p.post(t, "/v1/request", `{"path":"/","user":"u"}`)
			require.Equal(t, http.StatusOK, status, answer)
			if strings.Contains(answer, `"status":200`) {
				admitted++
			}
		}
	}
	require.Equal(t, 60, admitted)
	code, out := b.ask(t, "check", "api/hourly", "u")
	require.Equal(t, denied, code, out)
	code, out = b.ask(t, "peek", "api/hourly", "u")
	require.Equal(t, denied, code, out)
	require.Contains(t, out, "0 of 60 left")
	code, out = a.ask(t, "status")
	require.Equal(t, ok, code, out)
	require.Regexp(t, `(?m)^api/hourly +u +\d+$`, out, "who is denied most")
	code, out = c.ask(t, "reset", "api/hourly", "u")
	require.Equal(t, ok, code, out)
	code, out = b.ask(t, "check", "api/hourly", "v", "-units", "20", "-json")
	require.Equal(t, ok, code, out)
	require.Contains(t, out, `"remaining":40`)

	envoy := func(p *process) uint32 {
		conn, err := grpc.NewClient(p.addrs["envoy"], grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		defer conn.Close()
		answer, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rls.RateLimitRequest{Domain: "d", Descriptors: []*ratelimit.RateLimitDescriptor{
			{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user", Value: "u"}}},
		}})
		require.NoError(t, err)
		return answer.Statuses[0].LimitRemaining
	}
	require.EqualValues(t, 999, envoy(a))
	require.LessOrEqual(t, envoy(b), uint32(998))
	require.LessOrEqual(t, envoy(c), uint32(997))

	require.NoError(t, c.Process.Signal(syscall.SIGHUP)) // it is asked again below

	// One leaves in order, and takes nothing along.
	require.NoError(t, b.Process.Signal(syscall.SIGTERM))
	require.NoError(t, b.Wait(), "it exits with 0: %s", &b.out)
	code, out = c.ask(t, "peek", "api/hourly", "v")
	require.Equal(t, ok, code, out)
	require.Contains(t, out, "40 of 60 left")
	code, out = c.ask(t, "status")
	require.Equal(t, ok, code, out)
	require.NotContains(t, out, "b-", "who left is off the roster")

	// Another is killed: checks go on, and status says who is missing.
	require.NoError(t, a.Process.Kill())
	require.Eventually(t, func() bool {
		code, out = c.ask(t, "status")
		return code == bad && strings.HasPrefix(out, "OUTAGE since") && strings.Contains(out, "missing a-")
	}, 30*time.Second, 100*time.Millisecond, "%s", &c.out)
	status, answer := c.post(t, "/v1/take", `{"limit":"api/hourly","key":"w"}`)
	require.Equal(t, http.StatusOK, status, answer)
	metrics, err := http.Get("http://" + c.addrs["health"] + "/metrics")
	require.NoError(t, err)
	defer metrics.Body.Close()
	text, err := io.ReadAll(metrics.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), "weir_")
	require.NotContains(t, c.out.String(), "level=ERROR")
}

func TestWhoMayNotAskIsToldHowTo(t *testing.T) {
	dir := folder(t)
	p := start(t, dir)
	status, _ := p.post(t, "/v1/take", `{"limit":"none","key":"u"}`)
	require.Equal(t, http.StatusNotFound, status)
	a, err := http.Post("http://"+p.addrs["checks"]+"/v1/take", "application/json", strings.NewReader(`{"limit":"api/hourly","key":"u"}`))
	require.NoError(t, err)
	a.Body.Close()
	require.Equal(t, http.StatusUnauthorized, a.StatusCode)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"status", "-admin", "http://" + p.addrs["admin"]}, bad, "give -token_file"},
		{[]string{"status", "-admin", "http://" + p.addrs["admin"], "-token_file", "checks"}, bad, "not one of those that may ask"},
		{[]string{"status", "-admin", "127.0.0.1"}, bad, "use a URL"},
		{[]string{"status", "-admin", "http://127.0.0.1:1", "-token_file", "admin"}, bad, "does the node run"},
		{[]string{"status", "-admin", "http://" + p.addrs["health"], "-token_file", "admin"}, bad, "404"},
		{[]string{"check", "api/hourly"}, usage, "1 arguments besides the flags, and it wants 2"},
		{[]string{"peek", "a", "b", "-x"}, usage, "not defined"},
		{[]string{"check", "api/hourly", "u", "-units", "0", "-admin", "http://" + p.addrs["admin"], "-token_file", "admin"}, bad, "use 1 to"},
		{[]string{"check", "api/hourle", "u", "-admin", "http://" + p.addrs["admin"], "-token_file", "admin"}, bad, `"api/hourly"`},
		{[]string{"peek", "api/none", "u", "-admin", "http://" + p.addrs["admin"], "-token_file", "admin"}, bad, "there is no limit"},
	} {
		cmd := weirIn(t, dir, c.args...)
		out, _ := cmd.CombinedOutput()
		require.Equal(t, c.code, cmd.ProcessState.ExitCode(), "%q: %s", c.args, out)
		require.Contains(t, string(out), c.says, "%q", c.args)
	}
}

func TestWhatCannotStartSaysWhatToDo(t *testing.T) {
	dir := folder(t)
	p := start(t, dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bad.yaml"), []byte("rules: 1"), 0o600))
	for _, c := range []struct{ args, says string }{
		{"-checks " + p.addrs["checks"], "-checks: listen tcp " + p.addrs["checks"]},
		{"-checks 127.0.0.1:0 -admin_tokens admin -admin " + p.addrs["admin"], "-admin: listen tcp " + p.addrs["admin"]},
		{"-checks 127.0.0.1:0 -health " + p.addrs["health"], "-health: listen tcp " + p.addrs["health"]},
		{"-checks 127.0.0.1:0 -health 127.0.0.1:0 -envoy_config envoy.yaml -envoy " + p.addrs["envoy"], "-envoy: listen tcp " + p.addrs["envoy"]},
		{"-shared shared -bind " + p.addr(t), `weir serve: -bind "` + p.addr(t) + `": the port of `},
		{"-checks 127.0.0.1:0 -health 127.0.0.1:0 -rules bad.yaml", "bad.yaml:1:"},
		{"-bind 0.0.0.0:0", "-shared is empty and -bind"},
		{"-checks 127.0.0.1:0 -health 127.0.0.1:0 -envoy 127.0.0.1:0 -envoy_config bad.yaml", "bad.yaml"},
		{"-shared rules.yaml", "has no line that begins with secret"},
		{"-checks 127.0.0.1:0 -health 127.0.0.1:0 -audit none/file", "-audit: open none/file"},
		{"-checks 127.0.0.1:0 -health 127.0.0.1:0 -audit - -audit_sample 2", "-audit_sample: weir: invalid"},
		{"-timeout 5h -replicas 9", "-timeout is 5h0m0s: use 0 for 100ms, or 100µs to 1m (-timeout is WEIR_TIMEOUT in the environment)"},
		{"-timeout 5h -replicas 9", "-replicas is 9: use 0 for 1"},
		{"-join a:1", "-join is set and -bind is empty: give -bind a host:port"},
		{"-bind 127.0.0.1:0 -region eu -regions us=a:1 -region_shares us=1", `-region_shares has no share of "eu": give one to -region and to each of -regions`},
	} {
		cmd := weirIn(t, dir, append([]string{"serve"}, strings.Fields(c.args)...)...)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
		out, _ := cmd.CombinedOutput()
		stop()
		cancel()
		require.Equal(t, bad, cmd.ProcessState.ExitCode(), "%s: %s", c.args, out)
		require.Contains(t, string(out), c.says, c.args)
	}
}

func TestThePageShowsTheClusterToOperatorsAndKeepsNobodyFromLeaving(t *testing.T) {
	dir := folder(t)
	a := start(t, dir, "-name", "a")
	b := start(t, dir, "-name", "b", "-join", a.addr(t))
	require.Eventually(t, allReady(a, b), 60*time.Second, 20*time.Millisecond)
	look := func(path, password string) *http.Response {
		r, err := http.NewRequest(http.MethodGet, "http://"+a.addrs["admin"]+path, nil)
		require.NoError(t, err)
		r.SetBasicAuth("anybody", password)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		t.Cleanup(func() { answer.Body.Close() })
		return answer
	}
	require.Equal(t, http.StatusUnauthorized, look("/page/events", checksToken).StatusCode, "who may ask for checks is no operator")
	index := look("/page/", adminToken)
	require.Equal(t, http.StatusOK, index.StatusCode)
	require.Contains(t, index.Header.Get("Content-Security-Policy"), "default-src 'none'")
	status, answer := a.post(t, "/v1/take", `{"limit":"api/hourly","key":"u"}`)
	require.Equal(t, http.StatusOK, status, answer)
	events := bufio.NewScanner(look("/page/events?limit=api/hourly&key=u", adminToken).Body)
	seen := ""
	for !strings.Contains(seen, "event: key") && events.Scan() {
		seen += events.Text() + "\n"
	}
	require.True(t, events.Scan(), seen)
	require.Contains(t, events.Text(), `"grants":60,"used":1,`)
	for _, said := range []string{`"name":"a"`, `"id":"b-`, `"health":"serving"`, `"limits":["api/hourly"]`} {
		require.Contains(t, seen, said)
	}

	require.NoError(t, a.Process.Signal(syscall.SIGTERM))
	for events.Scan() {
	}
	require.NoError(t, events.Err(), "what a viewer is sent has an orderly end")
	require.NoError(t, a.Wait(), "it exits with 0: %s", &a.out)
}

func TestASocketOfThisMachineNeedsNoToken(t *testing.T) {
	dir := folder(t)
	cmd := weirIn(t, dir, "serve", "-rules", "rules.yaml", "-checks", "unix:checks.sock", "-admin", "unix:admin.sock", "-admin_tokens", "admin", "-health", "")
	require.NoError(t, cmd.Start())
	defer func() {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, cmd.Wait())
	}()
	asked := func(args ...string) (int, string) {
		c := weirIn(t, dir, append(args, "-admin", "unix:"+filepath.Join(dir, "admin.sock"), "-token_file", "admin")...)
		out, _ := c.CombinedOutput()
		return c.ProcessState.ExitCode(), string(out)
	}
	require.Eventually(t, func() bool { code, _ := asked("status"); return code == ok }, 30*time.Second, 50*time.Millisecond)
	code, out := asked("check", "api/hourly", "u")
	require.Equal(t, ok, code, out)
	require.Equal(t, "allowed: 59 of 60 left, by owner\n", out)
	info, err := os.Stat(filepath.Join(dir, "checks.sock"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o660), info.Mode().Perm(), "others may not ask")
}

func TestTheDockerfileBuildsAStaticBinaryOfWhatIsThere(t *testing.T) {
	text, err := os.ReadFile("Dockerfile")
	require.NoError(t, err)
	require.Contains(t, string(text), "CGO_ENABLED=0")
	require.Contains(t, string(text), "\nFROM scratch\n")
	require.Contains(t, string(text), "\nUSER 65532:65532\n")
	built := regexp.MustCompile(`go build .* -o (\S+) (\S+)`).FindStringSubmatch(string(text))
	require.NotNil(t, built)
	require.Equal(t, "./cmd/weir", built[2])
	require.Contains(t, string(text), fmt.Sprintf("COPY --from=build %s /weir", built[1]))

	binary := filepath.Join(t.TempDir(), "weir")
	build := exec.Command("go", "build", "-trimpath", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	file, err := elf.Open(binary)
	require.NoError(t, err)
	defer file.Close()
	for _, p := range file.Progs {
		require.NotEqual(t, elf.PT_INTERP, p.Type, "it needs a loader that is not there")
	}
}
