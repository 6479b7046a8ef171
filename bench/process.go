package main

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
	"time"
)

// roleVariable tells a process what to be: this binary, or that of the
// tests, starts itself again as another process.
const roleVariable = "WEIR_BENCH_ROLE"

// profileVariable names a file that other processes write their CPU profiles to,
// with role and process id added: -cpuprofile sees the first process alone.
const profileVariable = "WEIR_BENCH_CPUPROFILE"

// A role is what a process does for another: it serves until done is closed. It calls
// ready with the address that it serves at.
type role func(ready func(addr string), done <-chan struct{}) error

// startWait bounds how long a process may take to be ready, and to end. A machine that is
// busy needs many times as long as an idle one.
const startWait = time.Minute

// play ends when the standard input does, and so with the parent.
func play(name string, serve role) error {
	if serve == nil {
		return fmt.Errorf("no such role; set %s to nothing", roleVariable)
	}
	if path := os.Getenv(profileVariable); path != "" {
		f, err := os.Create(fmt.Sprintf("%s.%s.%d", path, name, os.Getpid()))
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

// startRole starts this binary in a role, with more in its environment.
func startRole(role string, env ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), roleVariable+"="+role), env...)
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

// quiet logs errors alone: a benchmark's output is its figures.
func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}
