package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"os/signal"
	"time"
)

// Service is a Child whose methods its parent calls, by net/rpc over the child's standard
// input and output. The methods of Service are safe for concurrent use.
type Service struct {
	*Child
	*rpc.Client
}

// StartService starts a command that calls ServeCalls. Like StartCommand, it must be
// called from a thread that lives as long as the program.
func StartService(cmd *exec.Cmd) (*Service, error) {
	replies, w := io.Pipe()
	c, err := startCommand(cmd, func(output io.Reader) {
		_, _ = io.Copy(w, output) // the copy ends with the child, or when the client is closed
		_ = w.Close()
	})
	if err != nil {
		return nil, err
	}
	return &Service{c, rpc.NewClient(callConn{replies, c.input, replies.Close})}, nil
}

// CallWithin is like Call, but returns an error when ctx is done or the given time has
// passed. The caller must not read reply after such an error.
func (s *Service) CallWithin(ctx context.Context, within time.Duration, method string, args, reply any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("lab: %s has not returned after %v", method, within))
	defer cancel()
	select {
	case call := <-s.Go(method, args, reply, nil).Done:
		return call.Error
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// End closes the client, which makes the child end, and then calls Await.
func (s *Service) End(within time.Duration) error {
	err := s.Close()
	if errors.Is(err, rpc.ErrShutdown) { // the child has ended before
		err = nil
	}
	return errors.Join(err, s.Await(within))
}

// ServeCalls is the child's side of a Service. It serves the exported methods of service
// under a name until the standard input ends and all calls have returned. From its call
// on, os.Stdout is the standard error, so that printed text does not corrupt replies.
// ServeCalls ignores interrupts: a terminal sends them to all processes, and the parent
// ends its children.
func ServeCalls(name string, service any) error {
	signal.Ignore(os.Interrupt)
	server := rpc.NewServer()
	if err := server.RegisterName(name, service); err != nil {
		return err
	}
	replies := os.Stdout
	os.Stdout = os.Stderr
	server.ServeConn(callConn{os.Stdin, replies, os.Stdin.Close})
	return nil
}

// callConn is a connection of two pipes.
type callConn struct {
	io.Reader
	io.WriteCloser
	closeReader func() error
}

// Close implements io.Closer.
func (c callConn) Close() error { return errors.Join(c.WriteCloser.Close(), c.closeReader()) }
