package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/rpc"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// childVariable makes the test binary a child. It holds what TestMain is to do.
const childVariable = "WEIR_LAB_CHILD"

// eventually bounds the wait for an event on a machine that is busy. It is no promise.
const eventually = time.Minute

// serviceChild has the child serve an echo.
const serviceChild = "service"

type echo struct{}

func (*echo) Say(words string, said *string) error {
	fmt.Println("no reply")
	*said = words
	return nil
}

func (*echo) Wait(int, *int) error { select {} }

type settings struct{ Exit int }

type told struct{ Said string }

func TestMain(m *testing.M) {
	text := os.Getenv(childVariable)
	if text == "" {
		os.Exit(m.Run())
	}
	if text == serviceChild {
		if err := ServeCalls("Echo", new(echo)); err != nil {
			os.Exit(1)
		}
		return
	}
	status := Serve(text, func(ctx, leave context.Context, s settings, orders <-chan string, tell func(any) error) error {
		_ = tell(told{"hello"})
		fmt.Println("no report")
		for {
			select {
			case o, more := <-orders:
				if more {
					_ = tell(told{o})
					continue
				}
			case <-leave.Done():
				if ctx.Err() == nil {
					return errors.New("told to leave")
				}
			}
			fmt.Fprintln(os.Stderr, "last words")
			return tell(told{"goodbye"})
		}
	}, func(err error) any { return told{err.Error()} })
	settings := settings{}
	_ = json.Unmarshal([]byte(text), &settings)
	os.Exit(max(status, settings.Exit))
}

// child starts one, and returns it with what it reports.
func child(t *testing.T, exit int) (*Child, <-chan told) {
	t.Helper()
	reports := make(chan told, 10)
	c, err := StartJSON(childVariable, settings{exit}, func(r told) { reports <- r })
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = c.Kill()
		<-c.Ended()
	})
	return c, reports
}

func TestServiceAnswersCallsUntilItEnds(t *testing.T) {
	start := func() *Service {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childVariable+"="+serviceChild)
		s, err := StartService(cmd)
		require.NoError(t, err)
		return s
	}
	s, said := start(), ""
	require.NoError(t, s.Call("Echo.Say", "hello", &said), "what the child prints is no reply")
	require.Equal(t, "hello", said)
	require.NoError(t, s.End(eventually))
	require.ErrorIs(t, s.Call("Echo.Say", "hello", &said), rpc.ErrShutdown)

	s = start()
	waiting := s.Go("Echo.Wait", 0, new(int), nil)
	require.NoError(t, s.Call("Echo.Say", "hello", &said))
	require.NoError(t, s.Kill())
	require.Error(t, (<-waiting.Done).Error, "a call ends with the child")
	require.Error(t, s.End(eventually))
}

func TestChildTakesOrdersAndReportsUntilItsInputEnds(t *testing.T) {
	c, reports := child(t, 0)
	require.Equal(t, told{"hello"}, <-reports, "its settings arrive")
	require.NoError(t, c.Order("sit"))
	require.Equal(t, told{"sit"}, <-reports, "a line that is no report is dropped")
	require.NoError(t, c.Stop(eventually))
	require.Equal(t, told{"goodbye"}, <-reports, "all reports are in once it has ended")
	require.True(t, c.Well())
	require.Contains(t, c.How(), "last words")
}

func TestChildThatEndsBadlyIsAnError(t *testing.T) {
	c, _ := child(t, 3)
	var exit *exec.ExitError
	require.ErrorAs(t, c.Stop(eventually), &exit)
	require.Equal(t, 3, exit.ExitCode())
	require.False(t, c.Well())
}

func TestChildThatIsLateIsKilled(t *testing.T) {
	c, _ := child(t, 0)
	require.ErrorIs(t, c.Await(time.Millisecond), ErrLate, "nobody told it to end")
	<-c.Ended()
	require.Contains(t, c.How(), "killed")
}

func TestFrozenChildGoesOn(t *testing.T) {
	if !Signals {
		t.Skip("this system has no signals to freeze a process with")
	}
	c, reports := child(t, 0)
	<-reports
	require.NoError(t, c.Freeze())
	require.NoError(t, c.Order("wait"))
	select {
	case r := <-reports: // it may read what came before all of its threads stood
		require.Equal(t, told{"wait"}, r)
	case <-time.After(20 * time.Millisecond):
	}
	require.NoError(t, c.Thaw())
	require.NoError(t, c.Stop(eventually))
	require.ErrorIs(t, c.Leave(), os.ErrProcessDone)
}

func TestChildLeavesOnSIGTERM(t *testing.T) {
	if !Signals {
		t.Skip("this system has no SIGTERM")
	}
	c, reports := child(t, 0)
	<-reports
	require.NoError(t, c.Leave())
	require.Equal(t, told{"told to leave"}, <-reports, "an error is told")
	var exit *exec.ExitError
	require.ErrorAs(t, c.Await(eventually), &exit)
	require.Equal(t, 1, exit.ExitCode())
}
