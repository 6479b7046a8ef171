// Command suite looks after the test suite: it finds tests that fail by chance, holds the
// default run to its time, and names the slowest tests.
//
//	go run ./internal/suite flakes -n 20              the default run, 20 times under load
//	go run ./internal/suite limit -seconds 180 go test work
//	go test -json work | go run ./internal/suite slowest
//	go test -race $(go run ./internal/suite raced)
//	WEIR_FULL=1 go test $(go run ./internal/suite full)
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

// The exit statuses.
const (
	exitFine = iota
	exitFailed
	exitUsage
)

const usage = `usage:
  suite flakes [-n rounds] [-race every] [-busy loops] [-run pattern] [package ...]
  suite limit -seconds n command [argument ...]
  suite slowest [-n tests] <events of go test -json
  suite raced
  suite full
`

// errFailed is returned for a failure that is already printed.
var errFailed = errors.New("failed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, in io.Reader, out, complaints io.Writer) int {
	commands := map[string]func(context.Context, []string, io.Reader, io.Writer) error{
		"flakes": flakes, "limit": limit, "slowest": slowest, "raced": raced, "full": fullRun,
	}
	if len(args) == 0 || commands[args[0]] == nil {
		fmt.Fprint(complaints, usage)
		return exitUsage
	}
	var wrong usageError
	switch err := commands[args[0]](ctx, args[1:], in, out); {
	case err == nil:
		return exitFine
	case errors.As(err, &wrong), errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(complaints, "suite %s: %v\n%s", args[0], err, usage)
		return exitUsage
	case errors.Is(err, errFailed):
		return exitFailed
	default:
		fmt.Fprintf(complaints, "suite %s: %v\n", args[0], err)
		return exitFailed
	}
}

// usageError is what is wrong with a command line.
type usageError string

func (e usageError) Error() string { return string(e) }

// parse reads a command's flags, and reports what is wrong with them as a usageError.
func parse(flags *flag.FlagSet, args []string) error {
	flags.SetOutput(io.Discard)
	if err := flags.Parse(args); err != nil && !errors.Is(err, flag.ErrHelp) {
		return usageError(err.Error())
	} else if err != nil {
		return err
	}
	return nil
}
