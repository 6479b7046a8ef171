package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"github.com/weir-go/weir/bench/internal/worker"
	"github.com/weir-go/weir/internal/lab"
)

// process is a child that is ready. Its end must follow a Kill.
type process struct {
	*lab.Child
	addr string
}

// end ends it.
func (p *process) end() error { return p.Stop(worker.StartWait) }

// startRole starts this binary in a role, with more in its environment.
func startRole(role string, env ...string) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return startProgram(program, role, env...)
}

// startProgram starts a program in a role.
func startProgram(program, role string, env ...string) (*process, error) {
	cmd := exec.Command(program)
	cmd.Env = append(append(os.Environ(), env...), worker.RoleVariable+"="+role)
	line := make(chan string, 1)
	child, err := lab.StartCommand(cmd, os.Stderr, func(text []byte) {
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
	case <-time.After(worker.StartWait):
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
