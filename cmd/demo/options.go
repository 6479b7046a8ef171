package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

type options struct {
	serve    bool
	soak     time.Duration
	regions  int
	nodes    int
	replicas int
	rate     int
	limit    int64
	duration time.Duration
	seed     uint64
}

// leastDuration is 8 s except in tests. In a shorter run, the windows are so short that
// only a few contain no fault.
var leastDuration = 8 * time.Second

// mostRequests is the maximum number of answers that are kept for the verdict. An answer
// takes about 150 bytes.
const mostRequests = 3_000_000

const usage = `Weir's demo: gateways as processes on this machine, HTTP traffic through all of
them under one limit for each client, deploys, new rules and faults. It ends by
itself with a verdict, and exit status 1 if a promise was broken.

	go run ./cmd/demo [flags]

`

// parse reads the command line. The error is flag.ErrHelp if the user asked for help.
// Otherwise it reports the first flag that cannot be parsed, or all other problems and their
// remedies.
func parse(args []string, help io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolVar(&o.serve, "serve", false, "run the gateways under some traffic until Ctrl-C, with a page that shows them and has buttons for faults")
	flags.DurationVar(&o.soak, "soak", 0, "the `time`, 30s to 24h, for which the demo plays random faults instead of its plan, each kind at least once. Then all gateways stop and start repeatedly for a tenth of that time. 0 plays the plan")
	flags.IntVar(&o.regions, "regions", 0, "the number of `regions`, 2 to 4, that share limits of scope global. This plays a different plan, in which demand moves and a region is cut off. 0 for no regions")
	flags.IntVar(&o.nodes, "nodes", 3, "the number of `gateways`, 3 to 9, or 2 to 9 with -serve. With -regions, it is the number in each region, by default 2. With -soak, the default is 5")
	flags.IntVar(&o.replicas, "replicas", 1, "the number of `copies` of each count. With -1, counts have no copies, so a crash resets counts, and the verdict reports this")
	flags.IntVar(&o.rate, "rate", 2000, "`requests` per second to all gateways together, 64 to 20000. The default is 600 or more with -regions, 200 with -serve, and 1500 with -soak")
	flags.Int64Var(&o.limit, "limit", 30, "`requests` that each client may send in 2s (10s with -serve), 1 to 10000. With -regions, the limit is over all regions, by default 50")
	flags.DurationVar(&o.duration, "duration", 36*time.Second, "the `time` for which the traffic runs, 8s to 10m, or longer if gateways are slow. Below 36s, the period of the limit is shorter than 2s. With -regions, 16s or more, by default 50s: the period is always 2s, below 50s the claims are judged by few periods, and below 36s not all promises are tested")
	flags.Uint64Var(&o.seed, "seed", 1, "the `number` that determines the requests of the clients, and the gateways with faults; random by default with -soak")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(help, usage)
		flags.SetOutput(help)
		flags.PrintDefaults()
		return o, err
	}
	if err != nil {
		return o, fmt.Errorf("%w: -h lists the flags", err)
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	unless := func(name string, value any) { // sets the value of a flag that was not given
		if !given[name] {
			_ = flags.Set(name, fmt.Sprint(value))
		}
	}
	if o.regions != 0 {
		unless("nodes", 2)
		unless("limit", 50)
		unless("duration", 50*time.Second) // so that each claim of use has at least two periods
	}
	enough := leastRate(o.limit, planetPer)
	switch {
	case o.regions != 0:
		unless("rate", max(600, enough))
	case o.serve:
		unless("rate", servedRate)
	case o.soak != 0:
		unless("nodes", 5)
		unless("rate", 1500)
		unless("limit", soakLimit)
		unless("seed", rand.Uint64N(1_000_000)+1)
	}
	requests := float64(o.rate) * o.duration.Seconds()
	if o.serve || o.soak != 0 {
		requests = 0 // the demo keeps only the latest answers
	}
	var wrong []error
	for _, c := range []struct {
		is   bool
		says string
		args []any
	}{
		{flags.NArg() > 0, "%q is not a flag: -h lists the flags", []any{flags.Arg(0)}},
		{o.regions != 0 && (o.regions < 2 || o.regions > len(regionNames)), "-regions is %d: use 2 to %d, or 0 for none", []any{o.regions, len(regionNames)}},
		{o.regions != 0 && o.serve, "-regions with -serve: a served demo has one region; use only one of the two flags", nil},
		{o.regions != 0 && o.duration < 16*time.Second, "-duration is %v: use 16s to 10m with -regions; the steps need this time", []any{o.duration}},
		{o.regions > 0 && o.limit > 0 && o.rate < enough, "-rate is %d: use %d or more, or a lower -limit; a lower rate does not use up the limits", []any{o.rate, enough}},
		{o.soak != 0 && (o.soak < 30*time.Second || o.soak > 24*time.Hour), "-soak is %v: use 30s to 24h, or 0 for the plan", []any{o.soak}},
		{o.soak != 0 && (o.serve || o.regions != 0 || given["duration"] || given["limit"]), "-soak with -serve, -regions, -duration or -limit: leave the other flag out; a soak has its own limits and duration", nil},
		{o.soak != 0 && o.rate < soakRate, "-rate is %d: use %d or more with -soak; a lower rate does not use up the limits", []any{o.rate, soakRate}},
		{o.soak != 0 && o.nodes <= steadfast, "-nodes is %d: use %d or more with -soak, because %d of them do not restart", []any{o.nodes, steadfast + 1, steadfast}},
		{o.nodes < 2 || o.nodes > 9, "-nodes is %d: use 2 to 9", []any{o.nodes}},
		{o.nodes == 2 && !o.serve && o.regions == 0 && o.soak == 0, "-nodes is 2: use 3 to 9; the plan kills one gateway and freezes another, and one of two is no majority", nil},
		{o.replicas == 0 || o.replicas < -1 || o.replicas > 8, "-replicas is %d: use 1 to 8, or -1 for none", []any{o.replicas}},
		{o.rate < workers || o.rate > 20000, "-rate is %d: use %d to 20000 requests a second", []any{o.rate, workers}},
		{o.limit < 1 || o.limit > 10000, "-limit is %d: use 1 to 10000 requests in a window", []any{o.limit}},
		{o.duration < leastDuration || o.duration > 10*time.Minute, "-duration is %v: use %v to 10m; the steps need this time", []any{o.duration, leastDuration}},
		{requests > mostRequests, "-rate %d for -duration %v is %.0f requests: use %d at most, because the verdict keeps all answers in memory", []any{o.rate, o.duration, requests, mostRequests}},
	} {
		if c.is {
			wrong = append(wrong, fmt.Errorf(c.says, c.args...))
		}
	}
	return o, errors.Join(wrong...)
}
