package worker

import (
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"time"
)

// RoleVariable tells a process what to be: the command, or a test of it, starts itself again
// as another process.
const RoleVariable = "WEIR_BENCH_ROLE"

// A role is what a process does for another: it serves until done is closed. It calls
// ready with the address that it serves at.
type Role func(ready func(addr string), done <-chan struct{}) error

// StartWait bounds how long a process may take to be ready, and to end. A machine that is
// busy needs many times as long as an idle one.
const StartWait = time.Minute

// Play plays a role. It ends when the standard input does, and so with the parent.
func Play(name string, serve Role) error {
	if serve == nil {
		return fmt.Errorf("no such role; set %s to nothing", RoleVariable)
	}
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(done)
	}()
	return serve(func(addr string) { fmt.Println(addr) }, done)
}

// ServeRPC serves a service under a name, to the one process that started this one, until
// done is closed.
func ServeRPC(name string, service any, ready func(addr string), done <-chan struct{}) error {
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
