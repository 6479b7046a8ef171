package bench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// roleVariable tells a process what to be: this test binary starts itself again
// as another process.
const roleVariable = "WEIR_BENCH_ROLE"

// profileVariable names a file that other processes write their CPU profiles to,
// with role and process id added: -cpuprofile sees the first process alone.
const profileVariable = "WEIR_BENCH_CPUPROFILE"

// A role serves until done is closed. It calls ready with the address that it
// serves at.
var roles = map[string]func(ready func(addr string), done <-chan struct{}) error{
	"member": serveMember,
	"echo":   serveEcho,
	"parent": serveThroughChild,
	"busy":   serveBusy,
}

// startWait bounds how long a process may take to be ready, and to end.
const startWait = 10 * time.Second

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := play(role); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", role, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// play ends when the standard input does, and so with the parent.
func play(role string) error {
	serve := roles[role]
	if serve == nil {
		return fmt.Errorf("no such role; set %s to nothing", roleVariable)
	}
	if path := os.Getenv(profileVariable); path != "" {
		f, err := os.Create(fmt.Sprintf("%s.%s.%d", path, role, os.Getpid()))
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(done)
	}()
	return serve(func(addr string) { fmt.Println(addr) }, done)
}

// process is a child that is ready.
type process struct {
	addr string
	pid  int
	kill func() error // as a crash would; end must follow
	end  func() error // once

	stop, resume func() error // as a CPU quota does
}

// startRole starts this test binary in a role.
func startRole(role string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	tieToParent(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line := make(chan string, 1)
	go func() {
		addr, _ := bufio.NewReader(out).ReadString('\n')
		line <- strings.TrimSpace(addr)
	}()
	p := &process{pid: cmd.Process.Pid, kill: cmd.Process.Kill, end: func() error {
		_ = in.Close()
		return endOf(cmd)
	}}
	p.stop, p.resume = pauses(cmd)
	select {
	case p.addr = <-line:
	case <-time.After(startWait):
	}
	if p.addr == "" {
		_ = p.kill()
		return nil, errors.Join(fmt.Errorf("bench: the %s did not start", role), p.end())
	}
	return p, nil
}

// endOf waits for a child that has been told to end, and kills it if it does
// not.
func endOf(cmd *exec.Cmd) error {
	patience := time.AfterFunc(startWait, func() { _ = cmd.Process.Kill() })
	defer patience.Stop()
	return cmd.Wait()
}

// start is startRole for a test or benchmark, which the child does not outlive.
func start(tb testing.TB, role string) *process {
	p, err := startRole(role)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, p.end(), "the end of the %s", role) })
	return p
}

// serveThroughChild is for the test that a child ends with its parent.
func serveThroughChild(ready func(string), done <-chan struct{}) error {
	p, err := startRole("echo")
	if err != nil {
		return err
	}
	ready(p.addr)
	<-done
	return p.end()
}

// quiet logs errors alone: a benchmark's output is its figures.
func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}
