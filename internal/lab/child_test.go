package lab

import (
	"context"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// childVariable makes the test binary a child: a printer, or a child that serves an echo.
const (
	childVariable = "WEIR_LAB_CHILD"
	printer       = "printer"
)

// eventually bounds the wait for an event on a busy machine. The bound is not a promise.
const eventually = time.Minute

// echo is the service of a child. The child exits with the status in the field status.
type echo struct{ status int }

func (*echo) Say(words string, said *string) error {
	fmt.Println("no reply")
	*said = words
	return nil
}

func (*echo) Wait(int, *int) error { select {} }

func (e *echo) Exit(status int, _ *int) error {
	fmt.Fprintln(os.Stderr, "last words")
	e.status = status
	return nil
}

func TestMain(m *testing.M) {
	switch os.Getenv(childVariable) {
	case "":
		os.Exit(m.Run())
	case printer:
		fmt.Println("one")
		_, _ = io.Copy(io.Discard, os.Stdin)
		fmt.Println("two")
		return
	}
	e := new(echo)
	if err := ServeCalls("Echo", e); err != nil {
		os.Exit(1)
	}
	os.Exit(e.status)
}

// startChild starts a child, and returns after a reply.
func startChild(t *testing.T) *Service {
	t.Helper()
	cmd, err := Self(childVariable + "=1")
	require.NoError(t, err)
	s, err := StartService(cmd)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = s.Kill()
		<-s.Ended()
	})
	said := ""
	require.NoError(t, s.Call("Echo.Say", "hello", &said), "printed text is not taken for a reply")
	require.Equal(t, "hello", said)
	return s
}

func TestServiceAnswersCallsUntilItEnds(t *testing.T) {
	for _, status := range []int{0, 3} {
		s := startChild(t)
		require.NoError(t, s.Call("Echo.Exit", status, new(int)))
		err := s.End(eventually)
		require.Equal(t, status == 0, err == nil)
		require.Equal(t, status == 0, s.Succeeded())
		if exit := new(exec.ExitError); status > 0 {
			require.ErrorAs(t, err, &exit)
			require.Equal(t, status, exit.ExitCode())
		}
		require.Contains(t, s.Outcome(), "last words")
		require.ErrorIs(t, s.Call("Echo.Say", "hello", new(string)), rpc.ErrShutdown)
	}

	s := startChild(t)
	waiting := s.Go("Echo.Wait", 0, new(int), nil)
	require.ErrorContains(t, s.CallWithin(t.Context(), time.Millisecond, "Echo.Wait", 0, new(int)), "Echo.Wait has not returned")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.CallWithin(ctx, eventually, "Echo.Wait", 0, new(int)), context.Canceled)
	require.NoError(t, s.Kill())
	require.Error(t, (<-waiting.Done).Error, "a call ends with the child")
	require.Error(t, s.End(eventually))
}

func TestLinesOfChildArriveUntilItsInputEnds(t *testing.T) {
	cmd, err := Self(childVariable + "=" + printer)
	require.NoError(t, err)
	lines := make(chan string, 10)
	c, err := StartCommand(cmd, func(line []byte) { lines <- string(line) })
	require.NoError(t, err)
	require.Equal(t, "one", <-lines)
	require.NoError(t, c.Stop(eventually))
	require.Equal(t, "two", <-lines, "all lines are passed on before Ended is closed")
}

func TestChildThatIsLateIsKilled(t *testing.T) {
	c := startChild(t)
	require.ErrorIs(t, c.Await(time.Millisecond), ErrLate, "the parent has not ended the child")
	<-c.Ended()
	require.Contains(t, c.Outcome(), "killed")
}

func TestThawedChildContinues(t *testing.T) {
	if !Signals {
		t.Skip("this system has no signals to freeze a process with")
	}
	c := startChild(t)
	require.NoError(t, c.Freeze())
	call := c.Go("Echo.Say", "wait", new(string), nil)
	require.NoError(t, c.Thaw())
	require.NoError(t, (<-call.Done).Error)
	require.NoError(t, c.End(eventually))
	require.ErrorIs(t, c.Leave(), os.ErrProcessDone)
}

func TestChildEndsOnSIGTERM(t *testing.T) {
	if !Signals {
		t.Skip("this system has no SIGTERM")
	}
	c := startChild(t)
	require.NoError(t, c.Leave())
	require.Error(t, c.Await(eventually))
	require.Contains(t, c.Outcome(), "terminated")
}
