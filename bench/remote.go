package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/weir-go/weir/bench/internal/worker"
	"github.com/weir-go/weir/internal/lab"
)

// roles contains the roles of the command's processes.
var roles = map[string]func() error{
	worker.Name: worker.Serve(begin),
	sizerRole:   func() error { return worker.ServeCalls(sizerRole, new(Sizer)) },
}

// playRole runs the role of this process and exits, or returns if there is no role.
func playRole() {
	name := os.Getenv(worker.RoleVariable)
	if name == "" {
		return
	}
	err := errors.New("no such role")
	if role := roles[name]; role != nil {
		err = role()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// startRemote starts a program in a role, with additional environment variables. An empty
// program stands for this program.
func startRemote(program, role string, env ...string) (*lab.Service, error) {
	cmd, err := lab.Self(append(env, worker.RoleVariable+"="+role)...)
	if err != nil {
		return nil, err
	}
	cmd.Path, cmd.Stderr = cmp.Or(program, cmd.Path), os.Stderr
	return lab.StartService(cmd)
}

func endAll(rs []*lab.Service) (err error) {
	for _, r := range rs {
		err = errors.Join(err, r.End(worker.StartWait))
	}
	return err
}

// callAll calls a method of all services concurrently, and returns their replies. Each
// call may take at most the given time.
func callAll[R, A any](rs []*lab.Service, within time.Duration, method string, arg A) ([]R, error) {
	replies, errs := make([]R, len(rs)), make([]error, len(rs))
	var calls sync.WaitGroup
	for i, r := range rs {
		calls.Go(func() { errs[i] = r.CallWithin(context.Background(), within, method, arg, &replies[i]) })
	}
	calls.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err // a call that timed out may still write to its reply
	}
	return replies, nil
}
