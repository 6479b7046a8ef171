// Command suite runs a command, and fails if that fails or takes longer than so many seconds
// of the reference machine:
//
//	go run ./internal/suite -seconds 180 go test work
//
// It measures this machine's speed before and after the command and scales the limit by it,
// so that a slow machine fails nobody and a slow suite fails everywhere.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// errSlow is returned for a command that exceeded its limit, which is already printed.
var errSlow = errors.New("too slow")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	seconds := flag.Float64("seconds", 0, "how long the command may take on the reference machine")
	flag.Parse()
	if *seconds <= 0 || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: suite -seconds n command [argument ...], with n above 0")
		os.Exit(2)
	}
	if err := limited(ctx, time.Duration(*seconds*float64(time.Second)), speed, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(1)
	}
}

// limited runs a command within a limit, on a machine of a measured speed.
func limited(ctx context.Context, most time.Duration, speed func(context.Context) time.Duration, command []string, out io.Writer) error {
	before := speed(ctx)
	began := time.Now()
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Stdout, c.Stderr = out, os.Stderr
	failure := c.Run()
	took := time.Since(began)
	after := speed(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	said, within := verdict(took, most, before, after)
	fmt.Fprintf(out, "%s: %s\n", strings.Join(command, " "), said)
	if failure != nil {
		return failure
	}
	if !within {
		return errSlow
	}
	return nil
}

// reference is what the measured work takes on the machine whose seconds limits are in:
// 2 cores of an AMD EPYC, otherwise idle, on which the default run takes 146 s.
const reference = 350 * time.Millisecond

// verdict reports whether a command that took so long kept to its limit, on a machine on
// which the measured work took before and after. The slower of the two counts.
func verdict(took, limit, before, after time.Duration) (said string, within bool) {
	slower := max(before, after).Seconds() / reference.Seconds()
	allowed := time.Duration(float64(limit) * max(1, slower))
	said = fmt.Sprintf("%.1f s of %.1f s allowed (limit %.1f s; this machine takes %.2f of the reference's time for the same work)",
		took.Seconds(), allowed.Seconds(), limit.Seconds(), slower)
	if took > allowed {
		return "too slow: " + said + "; make the slowest tests cheaper, or leave them to the full run", false
	}
	return said, true
}

// speed returns the median time that a fixed amount of work takes on two processors at
// once, of seven measurements. The work is of the kinds that tests do: memory, maps,
// sorting and goroutines that wait for each other.
func speed(ctx context.Context) time.Duration {
	var took []time.Duration
	for range 7 {
		if ctx.Err() != nil {
			return 0
		}
		began := time.Now()
		var all sync.WaitGroup
		for worker := range 2 {
			all.Go(func() { work(uint64(worker) + 1) })
		}
		all.Wait()
		took = append(took, time.Since(began))
	}
	runtime.GC()
	slices.Sort(took)
	return took[len(took)/2]
}

// work is the fixed amount of work, from a seed.
func work(seed uint64) (sum uint64) {
	next := func() uint64 { // xorshift64
		seed ^= seed << 13
		seed ^= seed >> 7
		seed ^= seed << 17
		return seed
	}
	there, back := make(chan uint64), make(chan uint64)
	go func() {
		defer close(back)
		for v := range there {
			back <- v + 1
		}
	}()
	for range 60 {
		counts := make(map[uint64]uint64)
		var drawn []uint64
		for range 20_000 {
			v := next() % 8192
			counts[v]++
			drawn = append(drawn, v)
		}
		slices.Sort(drawn)
		for i := range 2000 {
			there <- drawn[i]
			sum += <-back + counts[drawn[i]]
		}
	}
	close(there)
	<-back
	return sum
}
