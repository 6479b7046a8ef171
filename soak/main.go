package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

func main() {
	if told := os.Getenv(nodeVariable); told != "" {
		os.Exit(runNode(told))
	}
	runtime.LockOSThread() // the nodes die with the thread that started them
	lab.Main(run)
}

// options are the flags.
type options struct {
	duration time.Duration
	nodes    int
	rate     int
	seed     uint64
}

// steadfast is how many nodes are restarted by the rotation alone, which comes first:
// only what lives long shows that it grows.
const steadfast = 2

const (
	leastDuration = 30 * time.Second // less has no two windows to compare
	mostDuration  = 24 * time.Hour   // what was admitted is remembered until the end
	mostNodes     = 16
	mostRate      = 20_000
	leastChecks   = 1_000 // the total number of checks a second that the steady keys need to reach their limits
)

func parse(args []string, errOut io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.DurationVar(&o.duration, "for", 10*time.Minute, "how long faults are played, the rotation of the secret included, and each once at least; then all nodes stop and start for a tenth as long, twice at least")
	flags.IntVar(&o.nodes, "nodes", 5, "how many nodes there are, each a process")
	flags.IntVar(&o.rate, "rate", 300, "how many checks each node makes in a second")
	flags.Uint64Var(&o.seed, "seed", 0, "what the faults and the traffic are drawn from; 0 draws one, and prints it")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("soak: unexpected argument %q: it has flags alone", flags.Arg(0))
	case o.duration < leastDuration || o.duration > mostDuration:
		return o, fmt.Errorf("soak: -for is %v: use %v to %v", o.duration, leastDuration, mostDuration)
	case o.nodes <= steadfast || o.nodes > mostNodes:
		return o, fmt.Errorf("soak: -nodes is %d: use %d to %d, as %d of them are never killed", o.nodes, steadfast+1, mostNodes, steadfast)
	case o.nodes*o.rate < leastChecks || o.rate > mostRate:
		return o, fmt.Errorf("soak: -rate is %d: with %d nodes use %d to %d", o.rate, o.nodes, (leastChecks+o.nodes-1)/o.nodes, mostRate)
	}
	if o.seed == 0 {
		o.seed = rand.Uint64N(1_000_000) + 1
	}
	return o, nil
}

func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	o, err := parse(args, errOut)
	if err != nil {
		return err
	}
	if !lab.Signals {
		return errors.New("soak: this system has no signals to freeze a process with: run it on Linux or another Unix")
	}
	fmt.Fprintf(out, "%d nodes, %d checks a second each, for %v; the same again: go run ./soak -for %v -nodes %d -rate %d -seed %d\n\n",
		o.nodes, o.rate, o.duration, o.duration, o.nodes, o.rate, o.seed)
	f, err := newFleet(o, out)
	if err != nil {
		return err
	}
	err = f.play(ctx)
	err = errors.Join(err, f.close())
	if err != nil {
		return err
	}
	v := f.verdict()
	v.print(out)
	if len(v.broken()) > 0 {
		return fmt.Errorf("soak: %d broken; the same faults again: -seed %d", len(v.broken()), o.seed)
	}
	return nil
}
