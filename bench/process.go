package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/pprof"
	"time"

	"github.com/weir-go/weir/internal/lab"
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

// process is a child that is ready. Its end must follow a Kill.
type process struct {
	*lab.Child
	addr string
}

// end ends it.
func (p *process) end() error { return p.Stop(startWait) }

// startRole starts this binary in a role, with more in its environment.
func startRole(role string, env ...string) (*process, error) {
	line := make(chan string, 1)
	child, err := lab.Start(append(env, roleVariable+"="+role), os.Stderr, func(text []byte) {
		select {
		case line <- string(text):
		default: // what it prints afterwards is nothing to us
		}
	})
	if err != nil {
		return nil, err
	}
	p := &process{Child: child}
	select {
	case p.addr = <-line:
	case <-child.Ended():
	case <-time.After(startWait):
	}
	if p.addr == "" {
		_ = p.Kill()
		return nil, errors.Join(fmt.Errorf("bench: the %s did not start", role), p.end())
	}
	return p, nil
}

// quiet logs errors alone: a benchmark's output is its figures.
func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}
