package sourcetest

import (
	"net"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

// Server is a process that serves at an address.
type Server struct {
	Command func() *exec.Cmd // returns the command that starts the process
	Addr    string           // TCP address

	cmd   *exec.Cmd
	ended chan struct{}
	out   *lab.Text
}

// Start starts the process, and waits until it accepts connections.
func (s *Server) Start(t *testing.T) {
	t.Helper()
	s.Begin(t)
	s.Await(t)
}

// Begin starts the process.
func (s *Server) Begin(t *testing.T) {
	t.Helper()
	s.cmd, s.ended, s.out = s.Command(), make(chan struct{}), new(lab.Text)
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.out
	started := make(chan error)
	go func() {
		defer close(s.ended)
		runtime.LockOSThread() // the system treats the thread as the parent
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait() // the error is the signal that ended the process
		}
	}()
	ensure(t, <-started)
}

// Await waits until the process accepts connections.
func (s *Server) Await(t *testing.T) {
	t.Helper()
	lab.Eventually(t, s.cmd.Path+" accepts connections", func() bool {
		select {
		case <-s.ended:
			t.Fatalf("%s ended:\n%s", s.cmd.Path, s.out)
		default:
		}
		conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// Stop ends the process by a signal, and waits for its end. It does nothing for a process that has
// ended.
func (s *Server) Stop(t *testing.T, by syscall.Signal) {
	t.Helper()
	_ = s.cmd.Process.Signal(by)
	select {
	case <-s.ended:
	case <-time.After(lab.GiveUp):
		_ = s.cmd.Process.Kill()
		<-s.ended
		t.Fatalf("%s did not end:\n%s", s.cmd.Path, s.out)
	}
}
