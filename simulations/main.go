// Simulations plays whole clusters in virtual time, on a network with faults, and
// compares the units that callers were granted with the guarantees of Weir.
//
//	simulations                            lists the scenarios
//	simulations clean-split                plays one, second by second
//	simulations -svg split.svg clean-split draws it as well
//	simulations my-topology.yaml           plays a file of your own
//	simulations -seed 7 clean-split        plays it with other randomness
//	simulations -n 100 -seed 7             plays 100 random scenarios, the first with this seed
//	simulations -regions -n 100            the same, of regions that share limits
//	simulations -snapshots -n 100          the same, of nodes that write snapshots and all stop
//
// The exit status is 1 if an invariant is broken, or if a random scenario or the process that
// plays it fails. It is 2 after another error, and 130 after an interrupt.
package main

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-go/weir/internal/lab"
)

const (
	exitFine        = 0
	exitBroken      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	args := os.Args[1:]
	if os.Getenv(playerEnv) != "" {
		runInTest(func(t *testing.T) int {
			if err := lab.ServeCalls("Player", Player{t}); err != nil {
				return exitUsage
			}
			return exitFine
		})
	}
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, restore) // the next signal ends the process at once
	runInTest(func(t *testing.T) int { return runCommand(ctx, t, args, os.Stdout, os.Stderr) })
}

// runInTest calls f with a test, which a bubble requires, and exits with the result of f.
// No output of the testing package appears.
func runInTest(f func(t *testing.T) int) {
	os.Args = os.Args[:1]
	flag.CommandLine = flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	testing.Main(
		func(string, string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: "simulations", F: func(t *testing.T) { os.Exit(f(t)) }}},
		nil, nil)
}

type options struct {
	scenario string // name or file of a scenario, or empty
	svg      string
	seed     uint64
	seeded   bool
	count    int // number of random scenarios
	regions  bool
	stops    bool
}

func runCommand(ctx context.Context, t *testing.T, args []string, out, complain io.Writer) int {
	o, err := parseArgs(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return exitFine
	}
	var status int
	if err == nil {
		switch {
		case o.count > 0:
			return search(ctx, t, o, out, complain)
		case o.scenario == "":
			err = list(out)
		default:
			status, err = playOne(ctx, t, o, out, complain)
		}
	}
	if err != nil {
		fmt.Fprintf(complain, "simulations: %v\n", err)
		return exitUsage
	}
	return status
}

func parseArgs(args []string, out io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("simulations", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.svg, "svg", "", "draw the run into this `file`")
	flags.Uint64Var(&o.seed, "seed", 0, "seed of the run, or of the first random scenario; if not given, the seed of the scenario, or a random one")
	flags.BoolVar(&o.regions, "regions", false, "play random scenarios of regions that share limits")
	flags.BoolVar(&o.stops, "snapshots", false, "play only random scenarios in which nodes write snapshots and all nodes stop")
	flags.IntVar(&o.count, "n", 0, "play this `number` of random scenarios")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(out, "Usage: simulations [flags] [scenario or file.yaml]\nWithout arguments it lists the scenarios.")
		flags.SetOutput(out)
		flags.PrintDefaults()
		return o, err
	} else if err != nil {
		return o, fmt.Errorf("%w; -h lists the flags", err)
	}
	given := make(map[string]bool)
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	o.scenario, o.seeded = flags.Arg(0), given["seed"]
	switch {
	case flags.NArg() > 1:
		return o, fmt.Errorf("%d arguments, %s: name one scenario, after the flags", flags.NArg(), strings.Join(flags.Args(), " "))
	case given["n"] && o.count <= 0:
		return o, fmt.Errorf("-n is %d: use the number of random scenarios, at least 1", o.count)
	case given["n"] && o.scenario != "":
		return o, fmt.Errorf("-n and the scenario %s: use only one of the two", o.scenario)
	case given["n"] && o.svg != "":
		return o, errors.New("-svg draws a single run: name a scenario, and leave out -n")
	case o.regions && !given["n"]:
		return o, errors.New("-regions applies to random scenarios: add -n")
	case o.stops && (!given["n"] || o.regions):
		return o, errors.New("-snapshots applies to random scenarios without regions: add -n, and leave out -regions")
	case !given["n"] && o.scenario == "" && len(given) > 0:
		return o, errors.New("name a scenario: without arguments, the command lists them")
	}
	if o.count > 0 && !o.seeded {
		var b [4]byte
		_, _ = crand.Read(b[:]) // Read of crypto/rand never fails
		o.seed = uint64(binary.BigEndian.Uint32(b[:]))
	}
	return o, nil
}

// list prints the scenarios that come with the project.
func list(out io.Writer) error {
	all, err := bundledScenarios()
	if err != nil {
		return err
	}
	width := 0
	for _, s := range all {
		width = max(width, len(s.Name))
	}
	for _, s := range all {
		printWrapped(out, fmt.Sprintf("%-*s  ", width, s.Name), strings.Repeat(" ", width+2), s.About)
	}
	fmt.Fprintf(out, "\nPlay one with: %s %s\n", command(), all[0].Name)
	return nil
}

// findScenario returns the scenario with this name, or in this file.
func findScenario(what string) (*Scenario, error) {
	if strings.ContainsRune(what, os.PathSeparator) || strings.HasSuffix(what, ".yaml") || strings.HasSuffix(what, ".yml") {
		text, err := os.ReadFile(what)
		if err != nil {
			return nil, err
		}
		return parse(what, text)
	}
	all, err := bundledScenarios()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range all {
		if s.Name == what {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return nil, fmt.Errorf("no scenario is called %q: it is a .yaml file, or one of %s", what, strings.Join(names, ", "))
}

func playOne(ctx context.Context, t *testing.T, o options, out, complain io.Writer) (status int, err error) {
	s, err := findScenario(o.scenario)
	if err != nil {
		return exitUsage, err
	}
	if o.seeded {
		s.Seed = o.seed
	}
	stop := context.AfterFunc(ctx, func() { os.Exit(exitInterrupted) }) // there is nothing to report yet
	j, err := run(t, s)
	if !stop() {
		return exitInterrupted, nil
	}
	if err != nil {
		return exitBroken, err
	}
	broken := judge(j)
	printReport(out, j, broken)
	if o.svg != "" {
		picture, err := drawChart(j)
		if err != nil {
			return exitUsage, err
		}
		if err := os.WriteFile(o.svg, picture, 0o666); err != nil {
			return exitUsage, err
		}
	}
	if len(broken) > 0 {
		fmt.Fprintf(complain, "\nBroken with seed %d. %s: %s -seed %d %s\n", s.Seed, s.replayHint(), command(), s.Seed, o.scenario)
		return exitBroken, nil
	}
	return exitFine, nil
}

// replayHint returns the words before the command that replays a scenario.
func (s *Scenario) replayHint() string {
	if s.Gossip {
		return "Its runs differ because of gossip, so it may break only after several runs"
	}
	return "Replay it with"
}

// command returns the command that started this program.
func command() string {
	if path, err := os.Executable(); err != nil || strings.Contains(path, "go-build") {
		return "go run ./simulations"
	}
	return os.Args[0]
}
