package main

import (
	"errors"
	"fmt"
	"net/rpc"
	"time"
)

// remote is a process with a service, and the way to call it. end ends both, once.
type remote struct {
	*process
	*rpc.Client
}

func startRemote(role string, env ...string) (*remote, error) {
	return remoteOf(startRole(role, env...))
}

// remoteOf calls a process that has just been started.
func remoteOf(p *process, err error) (*remote, error) {
	if err != nil {
		return nil, err
	}
	c, err := rpc.Dial("tcp", p.addr)
	if err != nil {
		return nil, errors.Join(err, p.end())
	}
	return &remote{p, c}, nil
}

func (r *remote) end() error { return errors.Join(r.Close(), r.process.end()) }

func endAll(rs []*remote) (err error) {
	for _, r := range rs {
		err = errors.Join(err, r.end())
	}
	return err
}

// callAll calls a method of all at once, and returns their replies. That may take as long as
// within.
func callAll[R, A any](rs []*remote, within time.Duration, method string, arg A) ([]R, error) {
	replies, calls := make([]R, len(rs)), make([]*rpc.Call, len(rs))
	for i, r := range rs {
		calls[i] = r.Go(method, arg, &replies[i], nil)
	}
	late := time.After(within)
	var errs []error
	for _, c := range calls {
		select {
		case <-c.Done:
			errs = append(errs, c.Error)
		case <-late:
			return nil, fmt.Errorf("bench: %s has not returned after %v", method, within)
		}
	}
	return replies, errors.Join(errs...)
}
