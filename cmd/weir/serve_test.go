package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weir-go/weir/internal/lab"
)

// asWeir is the environment variable that makes the test binary run as the command.
const asWeir = "WEIR_TEST_AS_WEIR"

// asTicker is the environment variable that makes the test binary wake up four times a
// second, as often as gossip does, and do nothing else.
const asTicker = "WEIR_TEST_AS_TICKER"

func TestMain(m *testing.M) {
	if os.Getenv(asTicker) != "" {
		for range time.Tick(250 * time.Millisecond) {
		}
	}
	if os.Getenv(asWeir) != "" {
		limitFiles()
		main()
	}
	setCredentials()
	os.Exit(m.Run())
}

// reached is a weir serve that responds, in a separate process or in this process.
type reached struct {
	dir   string            // folder with the files of the process
	addrs map[string]string // keyed by the name of the flag
}

// process is a weir serve in a separate process.
type process struct {
	*exec.Cmd
	reached
	out lab.Text
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

// weirIn returns a weir command that runs in the given folder.
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

// eventually bounds the wait for an event on a busy machine. Weir does not promise this bound.
const eventually = time.Minute

// servesAt matches the log line with the addresses of the ports.
var servesAt = regexp.MustCompile(`msg="the node serves requests" checks=(\S+) admin=(\S+) health=(\S+) envoy=(\S+)`)

func start(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	return startWith(t, dir, func(*process) {}, args...)
}

// serving returns the flags of a node with all ports, with the files of a folder.
func serving(dir string, more ...string) []string {
	in := func(name string) string { return filepath.Join(dir, name) }
	return append([]string{
		"-rules", in("rules.yaml"), "-shared", in("shared"), "-bind", "127.0.0.1:0", "-checks", "127.0.0.1:0", "-checks_tokens", in("checks"),
		"-admin", "127.0.0.1:0", "-admin_tokens", in("admin"), "-health", "127.0.0.1:0", "-envoy", "127.0.0.1:0", "-envoy_config", in("envoy.yaml"), "-timeout", "5s",
	}, more...)
}

// startWith is like start, but calls set with the process before its start.
func startWith(t *testing.T, dir string, set func(p *process), args ...string) *process {
	t.Helper()
	p := &process{Cmd: weirIn(t, dir, append([]string{"serve"}, serving("", args...)...)...), reached: reached{dir, make(map[string]string)}}
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
	require.Eventually(t, func() bool { return servesAt.MatchString(p.out.String()) }, eventually, 5*time.Millisecond, "it does not serve")
	found := servesAt.FindStringSubmatch(p.out.String())
	for i, name := range []string{"checks", "admin", "health", "envoy"} {
		p.addrs[name] = found[i+1]
	}
	return p
}

// ask runs a client command against the node.
func (p *reached) ask(args ...string) (code int, out string) {
	words := 1
	if args[0] == "ban" || args[0] == "raise" || args[0] == "rules" {
		words = 2
	}
	var said strings.Builder
	code = run(slices.Concat(args[:words], []string{"-admin", "http://" + p.addrs["admin"], "-token_file", filepath.Join(p.dir, "admin")}, args[words:]), &said, &said)
	return code, said.String()
}

// call is a client command, and the response that a test expects.
type call struct {
	want string // a regular expression of the output
	code int
	args []string
}

// expect runs client commands against the node.
func (p *reached) expect(t *testing.T, calls []call) {
	t.Helper()
	for _, c := range calls {
		code, out := p.ask(c.args...)
		require.Equal(t, c.code, code, "%q: %s", c.args, out)
		require.Regexp(t, c.want, out, "%q", c.args)
	}
}

// asker does not keep connections open, because a process that stops would wait for them.
var asker = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// post sends a request to the check API.
func (p *reached) post(t *testing.T, path, body string) (status int, answer string) {
	t.Helper()
	status, answer, err := p.tryPost(path, body)
	require.NoError(t, err)
	return status, answer
}

func (p *reached) tryPost(path, body string) (status int, answer string, err error) {
	r, err := p.newCheck(context.Background(), path, body)
	if err != nil {
		return 0, "", err
	}
	a, err := asker.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	return a.StatusCode, string(text), err
}

// newCheck returns a request to the check API.
func (p *reached) newCheck(ctx context.Context, path, body string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.addrs["checks"]+path, strings.NewReader(body))
	if err == nil {
		r.Header.Set("Authorization", "Bearer "+checksToken)
		r.Header.Set("Content-Type", "application/json")
	}
	return r, err
}

func (p *reached) ready() bool {
	a, err := asker.Get("http://" + p.addrs["health"] + "/ready")
	if err != nil {
		return false
	}
	a.Body.Close()
	return a.StatusCode == http.StatusOK
}

// wait waits until the given function returns true.
func wait(t *testing.T, is func() bool, what ...any) {
	t.Helper()
	require.Eventually(t, is, eventually, 10*time.Millisecond, what...)
}

// waitReady waits until all nodes are ready.
func waitReady[N interface{ ready() bool }](t *testing.T, nodes ...N) {
	t.Helper()
	wait(t, func() bool {
		for _, n := range nodes {
			if !n.ready() {
				return false
			}
		}
		return true
	}, "not all are ready")
}

var boundTo = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// addr returns the address for other members, as the node reports it.
func (p *reached) addr(t *testing.T) string {
	t.Helper()
	code, out := p.ask("status", "-json")
	require.Equal(t, ok, code, out)
	return boundTo.FindString(out)
}

// decidedByAuthority matches a response that was decided with authority, and not by a
// replica or a share.
var decidedByAuthority = regexp.MustCompile(`"source":"(owner|forwarded|relayed|pushback|leased)"`)

func TestProcessesShareOneCountOverAllInterfaces(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	a := start(t, dir, "-name", "a")
	b := start(t, dir, "-name", "b", "-join", a.addr(t))
	c := start(t, dir, "-name", "c", "-join", a.addr(t))
	waitReady(t, a, b, c)

	// On a busy machine a node may count as stalled. Its stand-in then decides, and may
	// admit more. Such a round is repeated with a new key.
	key := ""
	for round := 0; ; round++ {
		require.Less(t, round, 50, "in no round did authority decide all checks")
		key = fmt.Sprint("u", round)
		admitted, byAuthority := 0, true
		for i := range 90 {
			path, question := "/v1/take", `{"limit":"api/hourly","key":"`+key+`"}`
			if i%2 == 1 {
				path, question = "/v1/request", `{"path":"/","user":"`+key+`"}`
			}
			status, answer := []*process{a, b, c}[i%3].post(t, path, question)
			require.Equal(t, http.StatusOK, status, answer)
			byAuthority = byAuthority && decidedByAuthority.MatchString(answer)
			if strings.Contains(answer, `"allowed":true`) {
				admitted++
			}
		}
		if byAuthority {
			require.Equal(t, 60, admitted)
			break
		}
	}
	var code int
	var out string
	wait(t, func() bool { code, out = b.ask("check", "api/hourly", key); return code == denied }, "it is not used up")
	wait(t, func() bool {
		code, out = b.ask("peek", "api/hourly", key)
		return code == denied && strings.Contains(out, "0 of 60 left")
	}, "it is not used up")
	// If a member responds late, status and reset report for a short time that it is missing.
	wait(t, func() bool { code, out = a.ask("status"); return code == ok })
	require.Regexp(t, `(?m)^api/hourly +`+key+` +\d+$`, out, "which key is denied most")
	wait(t, func() bool { code, out = c.ask("reset", "api/hourly", key); return code == ok })
	spent := ""
	for round := 0; spent == ""; round++ {
		require.Less(t, round, 50, "in no round did authority decide")
		fresh := fmt.Sprint("v", round)
		code, out = b.ask("check", "api/hourly", fresh, "-units", "20", "-json")
		require.Equal(t, ok, code, out)
		if decidedByAuthority.MatchString(out) {
			require.Contains(t, out, `"remaining":40`)
			spent = fresh
		}
	}

	envoy := func(p *process) uint32 {
		conn, err := grpc.NewClient(p.addrs["envoy"], grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		defer conn.Close()
		answer, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), envoyRequest("u"))
		require.NoError(t, err)
		return answer.Statuses[0].LimitRemaining
	}
	require.EqualValues(t, 999, envoy(a))
	require.LessOrEqual(t, envoy(b), uint32(998))
	require.LessOrEqual(t, envoy(c), uint32(997))

	require.NoError(t, c.Process.Signal(syscall.SIGHUP)) // the process must survive the signal: it gets requests below

	// Process b leaves in order, and loses no counts.
	require.NoError(t, b.Process.Signal(syscall.SIGTERM))
	require.NoError(t, b.Wait(), "it exits with 0: %s", &b.out)
	wait(t, func() bool {
		code, out = c.ask("peek", "api/hourly", spent)
		return code == ok && strings.Contains(out, "40 of 60 left")
	}, "the one that left took its counts along")
	wait(t, func() bool { code, out = c.ask("status"); return code == ok && !strings.Contains(out, "b-") }, "a member that left is off the roster")

	// Process a is killed: checks continue, and status names the missing member.
	require.NoError(t, a.Process.Kill())
	wait(t, func() bool {
		code, out = c.ask("status")
		return code == bad && strings.HasPrefix(out, "OUTAGE since") && strings.Contains(out, "missing a-")
	})
	require.Regexp(t, `(?m)^checks of 1 of 2 members since each started; without a-\S+, which did not answer$`, out)
	status, answer := c.post(t, "/v1/take", `{"limit":"api/hourly","key":"w"}`)
	require.Equal(t, http.StatusOK, status, answer)
	status, metrics := get(t, "http://"+c.addrs["health"]+"/metrics")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, metrics, "weir_")
	require.NotContains(t, c.out.String(), "level=ERROR")
}

func TestUnauthorizedRequestNamesRemedy(t *testing.T) {
	t.Parallel()
	p := begin(t, insecure.NewCredentials(), folder(t))
	status, _ := p.post(t, "/v1/take", `{"limit":"none","key":"u"}`)
	require.Equal(t, http.StatusNotFound, status)
	a, err := http.Post("http://"+p.addrs["checks"]+"/v1/take", "application/json", strings.NewReader(`{"limit":"api/hourly","key":"u"}`))
	require.NoError(t, err)
	a.Body.Close()
	require.Equal(t, http.StatusUnauthorized, a.StatusCode)
	admin, token := []string{"-admin", "http://" + p.addrs["admin"]}, []string{"-token_file", filepath.Join(p.dir, "admin")}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{slices.Concat([]string{"status"}, admin), bad, "set -token_file"},
		{slices.Concat([]string{"status", "-token_file", filepath.Join(p.dir, "checks")}, admin), bad, "the token is not allowed"},
		{[]string{"status", "-admin", "127.0.0.1"}, bad, "use HOST:PORT, a URL"},
		{slices.Concat([]string{"status", "-admin", "http://127.0.0.1:1"}, token), bad, "check that the node runs"},
		{slices.Concat([]string{"status", "-admin", "http://" + p.addrs["health"]}, token), bad, "404"},
		{[]string{"check", "api/hourly"}, usage, `expected "<key>"`},
		{[]string{"peek", "a", "b", "-x"}, usage, "-x"},
		{slices.Concat([]string{"check", "api/hourly", "u", "-units", "0"}, admin, token), bad, "use 1 to"},
		{slices.Concat([]string{"check", "api/hourle", "u"}, admin, token), bad, `"api/hourly"`},
		{slices.Concat([]string{"peek", "api/none", "u"}, admin, token), bad, "there is no limit"},
	} {
		var out strings.Builder
		require.Equal(t, c.code, run(c.args, &out, &out), "%q: %s", c.args, &out)
		require.Contains(t, out.String(), c.says, "%q", c.args)
	}
}

// refused returns the error of a node that does not start.
func refused(t *testing.T, args ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually)
	defer cancel()
	err := runServe(ctx, ctx, parsed(t, args...), slog.New(slog.DiscardHandler))
	require.Error(t, err, "%q: it serves", args)
	return err
}

func TestFailedStartNamesRemedy(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	p := begin(t, insecure.NewCredentials(), dir, "-snapshots", in("snapshots"))
	require.NoError(t, os.WriteFile(in("bad.yaml"), []byte("rules: 1"), 0o600))
	const free = "-checks 127.0.0.1:0 -health 127.0.0.1:0 "
	for _, c := range []struct{ args, says string }{
		{"-checks " + p.addrs["checks"], "weir serve: -checks: listen tcp " + p.addrs["checks"]},
		{free + "-admin_tokens " + in("admin") + " -admin " + p.addrs["admin"], "weir serve: -admin: listen tcp " + p.addrs["admin"]},
		{"-checks 127.0.0.1:0 -health " + p.addrs["health"], "weir serve: -health: listen tcp " + p.addrs["health"]},
		{free + "-envoy_config " + in("envoy.yaml") + " -envoy " + p.addrs["envoy"], "weir serve: -envoy: listen tcp " + p.addrs["envoy"]},
		{"-shared " + in("shared") + " -bind " + p.addr(t), `weir serve: -bind "` + p.addr(t) + `": the port of `},
		{free + "-rules " + in("bad.yaml"), "bad.yaml:1:"},
		{free + "-rules http://127.0.0.1:1/rules -rules_cache " + in("cache"), "weir serve: -rules: rules: http://127.0.0.1:1/rules: connection refused\n"},
		{free + "-rules http://example.com/ -rules_token " + in("checks"), "weir serve: -rules: weir: invalid NewSource: Token for http://example.com: use https"},
		{free + "-rules https://a/ -rules_token " + in("none"), "weir serve: -rules_token: open " + in("none")},
		{free + "-rules " + in("rules.yaml") + " -rules_poll 1ms", "weir serve: -rules: weir: invalid NewSource: Poll is 1ms"},
		{free + "-rules " + dir + "/none/", dir + "/none/: no such file or directory"},
		{"-bind 0.0.0.0:0", "-shared is empty and -bind"},
		{free + "-envoy 127.0.0.1:0 -envoy_config " + in("bad.yaml"), "bad.yaml"},
		{"-shared " + in("rules.yaml"), "write the lines that weir secret prints"},
		{free + "-audit " + in("none/file"), "-audit: open " + in("none/file")},
		{free + "-audit - -audit_sample 2", "-audit_sample: weir: invalid"},
		{free + "-snapshots " + in("snapshots"), "weir serve: -snapshots: snapshot: another process uses the directory " + in("snapshots") + ": give each process a directory of its own"},
		{free + "-snapshots " + in("shared"), "weir serve: -snapshots: snapshot: mkdir " + in("shared")},
		{free + "-snapshots " + in("other") + " -snapshot_every 1h", "-snapshot_every is 1h0m0s: use 0 for 1m0s, or 1s to 5m"},
		{"-timeout 5h -replicas 9", "-replicas is 9: use 0 for 1"},
		{"-bind 127.0.0.1:0 -region eu -regions us=a:1 -region_shares us=1", `-region_shares has no share of "eu": give one to -region and to each of -regions`},
	} {
		require.ErrorContains(t, refused(t, strings.Fields(c.args)...), c.says, c.args)
	}

	// A separate process prints the error to standard error, after a warning about its file
	// of tokens, and exits with 1.
	require.NoError(t, os.Chmod(in("checks"), 0o644))
	out, err := weirIn(t, dir, "serve", "-checks", p.addrs["checks"], "-checks_tokens", "checks").CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", out)
	require.Equal(t, bad, exit.ExitCode(), "%s", out)
	require.Contains(t, string(out), "weir serve: -checks: listen tcp "+p.addrs["checks"])
	require.Contains(t, string(out), `msg="every user of this machine can read a file of secrets; run chmod 600" path=checks`)
}

func TestPageShowsClusterAndDoesNotBlockLeave(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	a := begin(t, insecure.NewCredentials(), dir, "-name", "a")
	b := begin(t, insecure.NewCredentials(), dir, "-name", "b", "-join", a.addr(t))
	waitReady(t, a, b)
	look := func(path, password string) *http.Response {
		r, err := http.NewRequest(http.MethodGet, "http://"+a.addrs["admin"]+path, nil)
		require.NoError(t, err)
		r.SetBasicAuth("anybody", password)
		answer, err := asker.Do(r)
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

	a.stop()
	for events.Scan() {
	}
	require.NoError(t, events.Err(), "what a viewer is sent has an orderly end")
	require.NoError(t, <-a.done)
}

func TestLocalSocketNeedsNoToken(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	cmd := weirIn(t, dir, "serve", "-rules", "rules.yaml", "-checks", "unix:checks.sock", "-admin", "unix:admin.sock", "-admin_tokens", "admin", "-health", "")
	require.NoError(t, cmd.Start())
	defer func() {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, cmd.Wait())
	}()
	socket := "unix:" + filepath.Join(dir, "admin.sock")
	wait(t, func() bool {
		var said strings.Builder
		return run([]string{"status", "-admin", socket, "-token_file", filepath.Join(dir, "admin")}, &said, &said) == ok
	}, "it does not serve")
	asked := func(want int, args ...string) string { // in a separate process
		c := weirIn(t, dir, append(args, "-admin", socket, "-token_file", "admin")...)
		out, _ := c.CombinedOutput()
		require.Equal(t, want, c.ProcessState.ExitCode(), "%s", out)
		return string(out)
	}
	require.Equal(t, "allowed: 59 of 60 left, by owner\n", asked(ok, "check", "api/hourly", "u"))
	require.Contains(t, asked(denied, "check", "api/hourly", "u", "-units", "60"), "denied: 59 of 60 left")
	info, err := os.Stat(filepath.Join(dir, "checks.sock"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o660), info.Mode().Perm(), "others may not ask")
}

func TestDockerfileBuildsWithoutCgo(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("Dockerfile")
	require.NoError(t, err)
	require.Contains(t, string(text), "CGO_ENABLED=0")
	require.Contains(t, string(text), "\nFROM scratch\n")
	require.Contains(t, string(text), "\nUSER 65532:65532\n")
	built := regexp.MustCompile(`go build .* -o (\S+) (\S+)`).FindStringSubmatch(string(text))
	require.NotNil(t, built)
	require.Equal(t, "./cmd/weir", built[2])
	require.Contains(t, string(text), fmt.Sprintf("COPY --from=build %s /weir", built[1]))

	// The error would name a package that has no file without cgo.
	list := exec.Command("go", "list", "-deps", ".")
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	out, err := list.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "github.com/weir-go/weir/rules\n")
	require.NotContains(t, string(out), "runtime/cgo")
}

func TestDurationsInJSONLogsAreText(t *testing.T) {
	t.Parallel()
	p := &process{Cmd: weirIn(t, folder(t), append([]string{"serve"}, serving("", "-log_format", "json", "-leave_within", "61500ms")...)...)}
	p.Stderr = &p.out
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill() })
	wait(t, func() bool { return strings.Contains(p.out.String(), `"msg":"the node serves requests"`) })
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.Wait())
	require.Regexp(t, `(?m)^\{.*"msg":"the node is leaving the cluster".*"within":"1m1.5s".*\}$`, p.out.String())
}
