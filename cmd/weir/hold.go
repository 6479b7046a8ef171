package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// The exit codes of a command that was not started or was killed, like the exit codes of shells
// and env.
const (
	notExecutable = 126
	notFound      = 127
	signalled     = 128 // plus the number of the signal
)

// stopWithin is the time between the signal to end the command and its kill.
const stopWithin = 10 * time.Second

// holdCommand runs a command while it holds units of an in-flight limit.
type holdCommand struct {
	reaching
	countOf
	Command    []string      `arg:"" passthrough:"" placeholder:"-- COMMAND" help:"the command to run, after --"`
	Units      int64         `default:"1" help:"number of units"`
	Tier       string        `help:"the tier of the key"`
	TTL        time.Duration `name:"ttl" default:"30s" help:"the time after which the units are released if this process dies"`
	Wait       time.Duration `help:"the maximum time of retries while the units are denied; no retry if 0"`
	StopIfLost bool          `help:"stop the command if the hold is lost"`
}

// Help describes the exit code.
func (*holdCommand) Help() string {
	return "The exit code is that of the command, or 3 if the units are denied.\n\n  weir hold exports alice -- pg_dump shop"
}

// Validate removes the dashes before the command.
func (q *holdCommand) Validate() error {
	if len(q.Command) < 2 || q.Command[0] != "--" {
		return errors.New("put -- before the command, as in weir hold exports alice -- pg_dump shop")
	}
	q.Command = q.Command[1:]
	return nil
}

func (q *holdCommand) run(stdout, stderr io.Writer) (code int, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("weir hold: %w", err)
		}
	}()
	switch _, err := exec.LookPath(q.Command[0]); {
	case errors.Is(err, os.ErrPermission):
		return notExecutable, err
	case err != nil:
		return notFound, err
	}
	c, err := q.client(stdout)
	if err != nil {
		return bad, err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	h, v, err := q.takeUnits(c, signals)
	switch {
	case err != nil:
		return bad, err
	case v.code() != ok:
		v.print(stderr, "held", "denied") // stdout belongs to the command
		return v.code(), nil
	}
	defer func() {
		if err := h.release(); err != nil {
			fmt.Fprintf(stderr, "weir hold: the release failed, so the units stay held for up to %v: %v\n", q.TTL, err)
		}
	}()
	return q.runHeld(h, signals, stdout, stderr)
}

// takeUnits requests the units, and retries within q.Wait.
func (q *holdCommand) takeUnits(c *client, signals <-chan os.Signal) (*held, *verdict, error) {
	begun := time.Now()
	for {
		h := &held{client: c, ttl: q.TTL, count: heldCount{Limit: q.Limit, Key: q.countOf.Key, Tier: q.Tier, TTL: q.TTL.String()}, renewed: time.Now()}
		question := struct {
			heldCount
			Units int64 `json:"units"`
		}{h.count, q.Units}
		var answer struct {
			verdict
			Hold string `json:"hold"`
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		_, _, err := c.call(ctx, http.MethodPost, "/v1/hold", &question, &answer)
		cancel()
		h.count.Hold = answer.Hold
		again := max(time.Second, time.Duration(answer.RetryAfterS)*time.Second)
		if err != nil || answer.verdict.code() == ok || time.Since(begun)+again > q.Wait {
			return h, &answer.verdict, err
		}
		select {
		case <-time.After(again):
		case s := <-signals:
			return nil, nil, fmt.Errorf("the signal %v arrived while weir hold waited for units", s)
		}
	}
}

// runHeld runs the command, renews the hold meanwhile, and returns the exit code of the
// command.
func (q *holdCommand) runHeld(h *held, signals <-chan os.Signal, stdout, stderr io.Writer) (int, error) {
	lost, lose := context.WithCancel(context.Background())
	defer lose()
	run := exec.Command(q.Command[0], q.Command[1:]...)
	if q.StopIfLost {
		run = exec.CommandContext(lost, q.Command[0], q.Command[1:]...)
		run.Cancel, run.WaitDelay = func() error { return run.Process.Signal(syscall.SIGTERM) }, stopWithin
	}
	run.Stdin, run.Stdout, run.Stderr = os.Stdin, stdout, stderr
	if err := run.Start(); err != nil {
		return notExecutable, err
	}
	ended, end := context.WithCancel(context.Background())
	working := make(chan struct{})
	go func() {
		defer close(working)
		if err := h.keep(ended, signals, run.Process); err != nil {
			fmt.Fprintf(stderr, "weir hold: the hold is lost: %v\n", err)
			lose()
			h.forward(ended, signals, run.Process)
		}
	}()
	err := run.Wait()
	end()
	<-working
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		if status, is := exit.Sys().(syscall.WaitStatus); is && status.Signaled() {
			return signalled + int(status.Signal()), nil
		}
		return exit.ExitCode(), nil
	case err != nil && run.ProcessState == nil:
		return bad, err
	}
	return run.ProcessState.ExitCode(), nil
}

// heldCount identifies a hold in requests of the API.
type heldCount struct {
	Limit string `json:"limit"`
	Key   string `json:"key"`
	Tier  string `json:"tier"`
	TTL   string `json:"ttl,omitempty"`
	Hold  string `json:"hold,omitempty"`
}

// held represents a number of units that the node holds for this process.
type held struct {
	*client
	count   heldCount
	ttl     time.Duration
	renewed time.Time // start of the last request that held or renewed the units
}

// keep renews the hold and forwards signals to the process until ctx is done. An error
// means that the hold is lost.
func (h *held) keep(ctx context.Context, signals <-chan os.Signal, process *os.Process) error {
	if h.count.Hold == "" { // the rule is off, or the limit is a shadow that has denied
		h.forward(ctx, signals, process)
		return nil
	}
	wait := h.ttl / 3
	for {
		due, cancel := context.WithTimeout(ctx, min(wait, h.ttl-time.Since(h.renewed)))
		h.forward(due, signals, process)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		begun := time.Now()
		within, cancel := context.WithDeadline(ctx, h.renewed.Add(h.ttl))
		_, status, err := h.call(within, http.MethodPost, "/v1/renew", &h.count, nil)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			h.renewed, wait = begun, h.ttl/3
		case status == http.StatusGone, time.Since(h.renewed) >= h.ttl:
			return err
		default:
			wait = h.ttl / 10
		}
	}
}

// forward forwards signals to the process until ctx is done, but does not forward an
// interrupt, because a terminal sends it to both processes.
func (h *held) forward(ctx context.Context, signals <-chan os.Signal, process *os.Process) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			if s != os.Interrupt {
				_ = process.Signal(s) // the process may have ended
			}
		}
	}
}

// release releases the units.
func (h *held) release() error {
	if h.count.Hold == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	h.count.TTL = ""
	_, _, err := h.call(ctx, http.MethodPost, "/v1/release", &h.count, nil)
	return err
}
