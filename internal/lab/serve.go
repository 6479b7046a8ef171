package lab

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Main runs a command with the arguments of this process, until it is interrupted, and exits:
// with 2 if it was asked for help, and with 1 if it failed.
func Main(run func(ctx context.Context, args []string, out, errOut io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Serve is the whole of a process that StartJSON has started, but for what run does. It
// returns the exit status.
//
// ctx is done once the standard input ends, as it does when the parent dies or tells the
// child to stop: so a child whose run returns then does not outlive its parent. leave is done
// then, or on SIGTERM. An interrupt is ignored: a terminal sends it to all processes, and the
// parent ends its children. orders are the lines of the standard input, one at a time; it is
// closed once ctx is done. tell prints a report, and must not be called by two goroutines at a
// time. An error of run, or of the settings, is told as failed has it.
func Serve[S, O any](settings string, run func(ctx, leave context.Context, s S, orders <-chan O, tell func(report any) error) error, failed func(error) (report any)) int {
	signal.Ignore(os.Interrupt)
	ctx, end := context.WithCancel(context.Background())
	defer end()
	leave, restore := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer restore()
	tell, orders := json.NewEncoder(os.Stdout).Encode, make(chan O)
	var s S
	err := json.Unmarshal([]byte(settings), &s)
	if err != nil {
		err = fmt.Errorf("lab: the settings of a child: %w", err)
	} else {
		go func() { // ends with the process, if not before
			defer close(orders)
			defer end()
			for lines := json.NewDecoder(os.Stdin); ; {
				var o O
				if lines.Decode(&o) != nil {
					return
				}
				select {
				case orders <- o:
				case <-ctx.Done():
					return
				}
			}
		}()
		err = run(ctx, leave, s, orders, tell)
	}
	if err != nil {
		_ = tell(failed(err))
		return 1
	}
	return 0
}
