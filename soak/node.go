package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/rules"
	"github.com/weir-go/weir/snapshot"
)

// nodeVariable, in a process's environment, makes it a node. It holds the node's
// settings in JSON.
const nodeVariable = "WEIR_SOAK_NODE"

// settings is what a node is told.
type settings struct {
	Label   string
	Bind    string
	Join    []string
	Expect  int
	Secrets [][]byte
	Rules   string // the file
	Rate    int    // checks a second
	Seed    uint64
	Round   int64
	Dir     string        // of snapshots
	Skew    time.Duration // of its clock
	Stops   bool          // its traffic rests until it is told to go on, and then asks for kept keys
}

// An order is a line of JSON on a node's standard input.
type order struct {
	Do    string // one of those below
	Round int64  // whose keys are asked for
	Kept  bool   // among them kept keys
}

const (
	doRound  = "round"  // ask for the keys of another round
	doRest   = "rest"   // ask nothing
	doGoOn   = "go on"  // ask again
	doFigure = "figure" // take the figures
	doBreak  = "break"  // end all connections
)

// report is a line of JSON on a node's standard output, some of them each second.
type report struct {
	Error   string `json:",omitempty"` // why it does not run, or did not leave in order
	Name    string // of its node, another one at each start
	Whole   int    // members that serve, -1 if there are others, or the node is not ready
	Rules   uint64 // the version that it decides by
	Resting bool
	Cut     int      `json:",omitempty"` // connections that it has ended
	Figures *figures `json:",omitempty"`
	Saved   []int64  `json:",omitempty"` // when snapshots began that are kept now, in Unix nanoseconds
	Harvest harvest
}

// forget is short, so that the dead of the run's first half are no part of its second.
const forget = 5 * time.Second

// checkTimeout is the nodes' Config.Timeout: the default.
const checkTimeout = 100 * time.Millisecond

const (
	reportEvery = 50 * time.Millisecond
	leaveWithin = 10 * time.Second
	saveEvery   = time.Second // the least that weir takes
)

// A node's lateness is measured this often. Its sum alone is read, so that only the longest
// stand-stills are worth their memory.
const (
	lateEvery = 5 * time.Millisecond
	lateSlack = time.Second
)

// maxKeys bounds a node's counts, as a service does that is asked for new keys all
// the time.
const maxKeys = 50_000

// runNode is the whole of a node's process. It returns the exit status.
func runNode(told string) int {
	return lab.Serve(told, serveNode, func(err error) any { return report{Error: err.Error()} })
}

func serveNode(ctx, leave context.Context, s settings, orders <-chan order, tell func(any) error) (err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	dir, err := snapshot.OpenDir(s.Dir, snapshot.DirOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	store := &store{Store: dir}
	node, err := weir.Start(ctx, weir.Config{
		Name: s.Label, Bind: s.Bind, Join: s.Join, Expect: s.Expect, Secrets: s.Secrets,
		Timeout: checkTimeout, Forget: forget, MaxKeys: maxKeys,
		Snapshots: store, SnapshotEvery: saveEvery,
		Logger: log, Now: func() time.Time { return time.Now().Add(s.Skew) }, // the clock that the judge reads, but for a skew
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	book, err := rules.Open(ctx, node, s.Rules, rules.BookOptions{Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, book.Close()) }()

	late := new(lab.Lateness)
	late.Start(lateEvery, lateSlack)
	defer late.Stop()
	t, err := newTraffic(node, book, late, limits(s.Expect, s.Rate))
	if err != nil {
		return err
	}
	t.round.Store(s.Round)
	t.kept.Store(s.Stops)
	var running sync.WaitGroup
	defer running.Wait()
	ask, still := context.WithCancel(ctx)
	defer still()

	say := func(r report) error {
		all := node.Members()
		r.Whole, r.Rules, r.Harvest, r.Saved = len(all), book.Current().Version(), t.harvest(), store.began()
		for _, m := range all {
			if m.Self {
				r.Name = m.Name
			}
			if m.State != weir.Serving {
				r.Whole = -1
			}
		}
		if !node.Ready() {
			r.Whole = -1
		}
		return tell(r)
	}
	asking, resting := false, false
	rest := func(should bool) {
		switch {
		case should && !resting:
			t.rest.Lock()
		case resting && !should:
			t.rest.Unlock()
		}
		resting = should
	}
	rest(s.Stops)
	defer rest(false)
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		r := report{Resting: resting}
		select {
		case <-ctx.Done():
			return nil
		case <-leave.Done():
			if ctx.Err() != nil { // which is its parent
				return nil
			}
			bounded, cancel := context.WithTimeout(ctx, leaveWithin)
			defer cancel()
			err := node.Leave(bounded) // it is asked meanwhile, as its service still serves
			still()
			rest(false)
			running.Wait()
			return errors.Join(err, say(r))
		case o := <-orders: // the zero order, which does nothing, once ctx is done
			switch o.Do {
			case doRound:
				t.round.Store(o.Round)
				t.kept.Store(o.Kept)
			case doRest:
				rest(true)
			case doGoOn:
				rest(false)
			case doFigure:
				f := takeFigures(node)
				r.Figures = &f
			case doBreak:
				if r.Cut, err = breakConnections(); err != nil {
					return err
				}
			}
			r.Resting = resting
		case <-tick.C:
		}
		if !asking && node.Ready() { // a balancer sends nothing before
			asking = true
			running.Go(func() { t.run(ask, s.Rate, s.Seed) })
		}
		if err := say(r); err != nil {
			return err
		}
	}
}
