package lab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Child is a process that a program has started: the program itself, run once more, or
// another command. A child does not outlive its parent: its standard input is a pipe that
// the parent holds open, so a child that reads its input to the end knows when to end. On
// some systems, the kernel kills the child when the parent dies (see TieToParent).
//
// One goroutine reads the child's standard output, and waits for the child after the last
// line. So all lines are handed over before Ended is closed, and Cmd.ProcessState is set
// from then on. The methods of Child are safe for concurrent use.
type Child struct {
	Cmd   *exec.Cmd
	input io.WriteCloser
	ended chan struct{}
	err   error // error of Cmd.Wait, once ended is closed
	last  Text  // last bytes of the standard error
}

// maxLine is the maximum length of a child's line, in bytes. If a line is longer, the rest of the
// output is not read.
const maxLine = 16 << 20

// lastBytes is the number of bytes that are kept of a child's standard error.
const lastBytes = 4 << 10

// Self returns a command that runs this program once more, with additional environment
// variables.
func Self(environment ...string) (*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), environment...)
	return cmd, nil
}

// StartCommand starts a command, and passes each line that the command prints to the
// function line, which must not keep the bytes. The child keeps the end of its standard
// error for Outcome, unless cmd.Stderr is set.
//
// StartCommand must be called from a goroutine that is locked to a thread that lives as
// long as the program: some systems take the end of that thread for the end of the
// parent.
func StartCommand(cmd *exec.Cmd, line func([]byte)) (*Child, error) {
	return startCommand(cmd, func(output io.Reader) {
		lines := bufio.NewScanner(output)
		lines.Buffer(nil, maxLine)
		for lines.Scan() {
			line(lines.Bytes())
		}
	})
}

// startCommand starts a command, and passes its standard output to the function read. When read
// returns, the goroutine waits for the child.
func startCommand(cmd *exec.Cmd, read func(io.Reader)) (c *Child, err error) {
	c = &Child{Cmd: cmd, ended: make(chan struct{}), last: Text{Most: lastBytes}}
	if cmd.Stderr == nil {
		cmd.Stderr = &c.last
	}
	TieToParent(c.Cmd)
	if c.input, err = c.Cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := c.Cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.ended)
		read(output)
		c.err = c.Cmd.Wait()
	}()
	return c, nil
}

// PID returns the child's process id.
func (c *Child) PID() int { return c.Cmd.Process.Pid }

// Kill ends the child in the same way as a crash.
func (c *Child) Kill() error { return c.Cmd.Process.Kill() }

// Ended returns a channel that is closed when the child has ended, the parent has waited
// for the child, and all lines were handed over.
func (c *Child) Ended() <-chan struct{} { return c.ended }

// Succeeded reports whether the child ended with exit status 0. The caller must wait for
// Ended first.
func (c *Child) Succeeded() bool { return c.err == nil }

// ErrLate means that a child was killed because it did not end in time.
var ErrLate = errors.New("lab: the process did not end in time")

// Stop closes the child's standard input, which ends the child, and then calls Await.
func (c *Child) Stop(within time.Duration) error {
	_ = c.input.Close() // the child may have ended before
	return c.Await(within)
}

// Await waits until the child has ended. If that takes longer than the given time, Await kills the child
// and returns ErrLate. Otherwise the error is that of exec.Cmd.Wait: an *exec.ExitError if the
// exit status is not 0, or a signal ended the child.
func (c *Child) Await(within time.Duration) error {
	patience := time.NewTimer(within)
	defer patience.Stop()
	select {
	case <-c.ended:
		return c.err
	case <-patience.C:
		_ = c.Kill()
		<-c.ended
		return fmt.Errorf("%w: it was killed after %v", ErrLate, within)
	}
}

// Outcome describes how the child exited, and includes the last lines of its standard error.
// The caller must wait for Ended first.
func (c *Child) Outcome() string {
	how := c.Cmd.ProcessState.String()
	if words := strings.TrimSpace(c.last.String()); words != "" {
		how += "; its last words:\n" + words
	}
	return how
}
