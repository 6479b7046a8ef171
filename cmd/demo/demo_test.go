//go:build unix

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testenv"
)

// runEnv makes the test binary run the demo, so that the demo is tested as a process. Its
// gateways also run the test binary.
const runEnv = "WEIR_DEMO_RUN"

// endChromium ends the browser if a test has started it. Only tests with the build tag
// browser start it.
var endChromium = func() {}

func TestMain(m *testing.M) {
	if os.Getenv(runEnv) != "" || os.Getenv(gatewayEnv) != "" {
		leastDuration = time.Second
		os.Exit(runCommand(os.Args[1:], os.Stdout, os.Stderr))
	}
	code := m.Run()
	endChromium()
	os.Exit(code)
}

// spawner returns a fleet whose gateways a test can start.
func spawner(t *testing.T) *fleet {
	t.Helper()
	runtime.LockOSThread() // the gateways die with the thread
	f := newFleet(options{nodes: 2, replicas: 1, limit: 10}, time.Second, nil)
	require.NoError(t, f.hold())
	t.Cleanup(func() {
		f.stop()
		runtime.UnlockOSThread()
	})
	return f
}

// demo is a running demo.
type demo struct {
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	output strings.Builder
	pids   map[int]bool // process ids of all gateways so far

	longest int // line, in characters
}

func startDemo(t *testing.T, args ...string) *demo {
	d := &demo{cmd: exec.Command(os.Args[0], args...), pids: map[int]bool{}}
	d.cmd.Env = append(os.Environ(), runEnv+"=1", "TMPDIR="+t.TempDir()) // a killed demo leaves its rules there
	stdout, err := d.cmd.StdoutPipe()
	require.NoError(t, err)
	d.cmd.Stderr = os.Stderr
	require.NoError(t, d.cmd.Start())
	t.Cleanup(func() {
		d.cmd.Process.Kill()
		d.cmd.Wait()
		if t.Failed() {
			t.Log(d.output.String())
		}
	})
	d.lines = bufio.NewScanner(stdout)
	return d
}

var pidInLine = regexp.MustCompile(`process (\d+)`)

// readUntil reads the output of the demo up to a line that contains text, or to its end.
func (d *demo) readUntil(text string) bool {
	for d.lines.Scan() {
		line := d.lines.Text()
		d.longest = max(d.longest, utf8.RuneCountInString(line))
		d.output.WriteString(line + "\n")
		if m := pidInLine.FindStringSubmatch(line); m != nil {
			pid, _ := strconv.Atoi(m[1])
			d.pids[pid] = true
		}
		if text != "" && strings.Contains(line, text) {
			return true
		}
	}
	return false
}

// wait returns the exit status, once all processes have ended. Without a terminal no line
// may exceed plainWidth.
func (d *demo) wait(t *testing.T) int {
	t.Helper()
	d.readUntil("")
	require.LessOrEqual(t, d.longest, plainWidth)
	d.cmd.Wait()
	requireGone(t, d.pids)
	return d.cmd.ProcessState.ExitCode()
}

// requireGone requires that the processes end. A demo that ends by itself has waited for
// them.
func requireGone(t *testing.T, pids map[int]bool) {
	t.Helper()
	wait(t, func() bool {
		for pid := range pids {
			if running(pid) {
				return false
			}
		}
		return true
	}, "processes left over, of %v", pids)
}

// running reports whether a process runs. A zombie, for which no parent waits, does not run. In
// a container, a child may become a zombie if its parent has ended.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return runtime.GOOS != "linux"
	}
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(state, []byte("Z"))
}

// The windows take 200 ms; go run ./cmd/demo in .ci/run has windows of 2 s.
func TestShortRunKeepsPromisesAndLeavesNoProcess(t *testing.T) {
	t.Parallel()
	d := startDemo(t, "-duration", "3600ms", "-rate", "300", "-limit", "10")
	require.Equal(t, exitFine, d.wait(t))
	for _, said := range []string{"scale-out", "scale-in", "rolling restart", "SIGTERM", "SIGKILL", "starts again", "SIGSTOP", "SIGCONT",
		"the rules file changes", "all gateways decide by the new rules", "Every promise held."} {
		require.Contains(t, d.output.String(), said)
	}
	require.Len(t, d.pids, 8, "three gateways, one that joins and leaves, a deploy of three, and a replacement")
}

// A fleet without copies loses counts by a crash, so its verdict must report a broken
// promise.
func TestCrashWithoutCopiesBreaksPromise(t *testing.T) {
	testenv.SkipUnlessFull(t, "TestVerdictReportsBrokenPromises and TestFullestWindowIsFound, which find the reset; README.md shows the command")
	var d *demo
	for seed := 1; ; seed++ { // if the machine is busy, there may not be enough requests at the time of the crash
		d = startDemo(t, "-duration", "8s", "-rate", "1000", "-limit", "2", "-replicas", "-1", "-seed", strconv.Itoa(seed))
		if status := d.wait(t); status == exitBroken || seed == 5 {
			require.Equal(t, exitBroken, status)
			break
		}
	}
	require.Regexp(t, `broken: a client was granted \d+ in one of the windows of 400ms in which a gateway was killed`, d.output.String())
}

func TestCtrlCEndsEveryProcess(t *testing.T) {
	t.Parallel()
	d := startDemo(t)
	require.True(t, d.readUntil(" stalls"))
	require.GreaterOrEqual(t, len(d.pids), 3, "a slow machine may have scaled out by then")
	require.NoError(t, d.cmd.Process.Signal(os.Interrupt))
	require.Equal(t, exitInterrupted, d.wait(t))
	require.Contains(t, d.output.String(), "Interrupted")
}

func TestRegionsKeepEveryPromiseAndLeaveNoProcess(t *testing.T) {
	testenv.SkipUnlessFull(t, "the search workflow, which runs go run ./cmd/demo -regions 3, and TestCtrlCEndsEveryProcess")
	d := startDemo(t, "-regions", "3", "-duration", "16s")
	require.Equal(t, exitFine, d.wait(t))
	for _, said := range []string{"all of it to eu", "all of it from eu to us", "us, which has nearly all units, is cut off", "heal",
		"global", "cut", "regional", "Every promise held."} {
		require.Contains(t, d.output.String(), said)
	}
	require.Len(t, d.pids, 6, "two gateways in each region")
}

func TestServeEndsWithCtrlC(t *testing.T) {
	t.Parallel()
	d := startDemo(t, "-serve", "-nodes", "2")
	require.True(t, d.readUntil("Ctrl-C"))
	require.Contains(t, d.output.String(), "curl -i -H")
	file := regexp.MustCompile(`/\S+/rules.yaml`).FindString(d.output.String())
	require.FileExists(t, file)
	url := regexp.MustCompile(`http://\S+/v1/search`).FindString(d.output.String())
	response, err := http.Get(url)
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, `"address";q=200;w=10, "search";q=3;w=10`, response.Header.Get("RateLimit-Policy"))
	require.NoError(t, d.cmd.Process.Signal(os.Interrupt))
	require.Equal(t, exitFine, d.wait(t))
	require.Len(t, d.pids, 2)
	require.NoDirExists(t, filepath.Dir(file))
}

// The killed demo cannot end its gateways. The system and the gateways end them, even though
// one gateway is frozen.
func TestDeathOfDemoEndsEveryProcess(t *testing.T) {
	t.Parallel()
	d := startDemo(t)
	require.True(t, d.readUntil(" stalls"))
	require.GreaterOrEqual(t, len(d.pids), 3, "a slow machine may have scaled out by then")
	if runtime.GOOS == "linux" {
		for pid := range d.pids {
			require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
			break
		}
	}
	require.NoError(t, d.cmd.Process.Kill())
	d.wait(t)
}

func TestFailedStartLeavesNoProcess(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	f := spawner(t)
	require.NoError(t, f.rules.write(1, hourly))
	require.NoError(t, f.enter(0))
	f.sites[1].Bind = taken.Addr().String()
	require.NoError(t, f.enter(1))
	wait(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return strings.Contains(strings.Join(f.broken, ""), "gateway 2: weir: cluster: Bind")
	})
	f.stop()
	for _, inc := range f.all {
		require.False(t, running(inc.process.PID()))
	}
}

func TestGatewayFrozenDuringStartComesUp(t *testing.T) {
	t.Parallel()
	f := spawner(t)
	require.NoError(t, f.rules.write(1, hourly))
	for gateway, k := range []kind{freeze, thaw} {
		require.NoError(t, f.enter(gateway))
		require.NoError(t, f.do(t.Context(), step{kind: k}))
	}
	wait(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.current[0].hasCondition(up) && f.current[1].hasCondition(up)
	})
}

func TestUnexpectedEndOfGatewayBreaksPromise(t *testing.T) {
	t.Parallel()
	f := spawner(t)
	require.NoError(t, f.open(t.Context()))
	require.NoError(t, f.current[1].process.Kill())
	<-f.current[1].process.Ended()
	wait(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.broken) == 1 && strings.Contains(f.broken[0], "gateway 2 ended by itself: signal: killed")
	})
	f.stop() // the judged processes have ended
	v := (&monitor{fleet: f, tally: newTally(f, stallBound, new(lab.SchedulingDelay))}).judge(0)
	require.NotEmpty(t, v.failures())
}

func TestBadFlagsStateTheRemedy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, says string }{
		{"-nodes 1", "-nodes is 1: use 2 to 9"},
		{"-nodes 2", "-nodes is 2: use 3 to 9"},
		{"-replicas 0", "-replicas is 0: use 1 to 8, or -1 for none"},
		{"-rate 0", "-rate is 0: use 64 to 20000"},
		{"-rate 20000 -duration 5m", "is 6000000 requests: use 3000000 at most"},
		{"-limit 0", "-limit is 0: use 1 to 10000"},
		{"-duration 1s", "-duration is 1s: use 8s to 10m"},
		{"-duration soon", "-duration"},
		{"-seed -1", "-seed"},
		{"-regions 1", "-regions is 1: use 2 to 4"},
		{"-regions 5", "-regions is 5: use 2 to 4"},
		{"-regions 3 -serve", "-regions with -serve"},
		{"-regions 3 -duration 15s", "-duration is 15s: use 16s to 10m"},
		{"-regions 3 -limit 500 -rate 600", "-rate is 600: use 3334 or more"},
		{"-soak 1s", "-soak is 1s: use 30s to 24h"},
		{"-soak 1m -serve", "-soak with -serve"},
		{"-soak 1m -limit 3", "-soak with -serve, -regions, -duration or -limit"},
		{"-soak 1m -nodes 2", "-nodes is 2: use 3 or more with -soak"},
		{"-soak 1m -rate 999", "-rate is 999: use 1000 or more with -soak"},
		{"-what", "-h lists the flags"},
		{"now", `"now" is not a flag`},
	} {
		t.Run(c.args, func(t *testing.T) {
			var said strings.Builder
			require.Equal(t, exitUsage, runCommand(strings.Fields(c.args), os.Stdout, &said))
			require.Contains(t, said.String(), c.says)
		})
	}
	_, err := parse([]string{"-nodes", "1", "-rate", "1"}, io.Discard)
	require.ErrorContains(t, err, "-nodes")
	require.ErrorContains(t, err, "-rate", "all problems are reported at once")
}
