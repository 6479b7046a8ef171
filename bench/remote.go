package main

import (
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"time"
)

// serveRPC serves a service under a name, to the one process that started this one, until
// done is closed.
func serveRPC(name string, service any, ready func(addr string), done <-chan struct{}) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	server := rpc.NewServer()
	if err := server.RegisterName(name, service); err != nil {
		return err
	}
	go func() {
		if conn, err := listener.Accept(); err == nil {
			server.ServeConn(conn) // until the process ends
		}
	}()
	ready(listener.Addr().String())
	<-done
	return nil
}

// remote is a process with a service, and the way to call it. end ends both, once.
type remote struct {
	*process
	*rpc.Client
}

func startRemote(role string, env ...string) (*remote, error) {
	p, err := startRole(role, env...)
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
