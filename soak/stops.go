package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/snapshot"
)

// A run ends with stops of all nodes: before, the figures are of processes that live long.
// Stops take one stopsPart of the time of all other faults, and are fewestStops at least.
const (
	stopsPart   = 10
	fewestStops = 2
)

const (
	// mostSkew bounds how far clocks are ahead or behind. It is small beside the Per of the
	// traffic's durable limits, so that a step frees nothing.
	mostSkew = time.Minute
	// usedUpWithin is how long kept keys are asked for after a start at most.
	usedUpWithin = 15 * time.Second
)

// store is a Store that takes note of what it has kept.
type store struct {
	snapshot.Store
	mu   sync.Mutex
	kept []int64
}

// Save implements [snapshot.Store].
func (s *store) Save(ctx context.Context, node string, write func(io.Writer) error) error {
	began := time.Now().UnixNano()
	err := s.Store.Save(ctx, node, write)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.kept = append(s.kept, began)
	}
	return err
}

// began returns when the snapshots began that were kept since its last call.
func (s *store) began() (kept []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept, s.kept = s.kept, nil
	return kept
}

// outage is a stop of all nodes, and what came of it.
type outage struct {
	fault
	round   int64 // whose keys were asked for
	orderly bool
	skew    time.Duration // offset of the clocks of the nodes that start next

	// What follows is of durable limits, once the run is judged.
	before, since int64 // units that were admitted before the stop; of these, since the last snapshots
	again         int64 // units that were admitted beyond the limits
	usedUp        int   // kept keys
	problems      []string
}

// stopAll has kept keys asked for, stops all nodes meanwhile, and starts others with their
// snapshots, which are asked until the keys are used up. Every other stop is in order.
func (f *fleet) stopAll(ctx context.Context, n int) error {
	f.stopping = true
	o := outage{round: f.round + 1, orderly: n%2 == 1, skew: time.Duration(f.draw.Int64N(int64(2*mostSkew))) - mostSkew}
	f.round = o.round
	if err := f.tell(order{Do: doRound, Round: f.round, Kept: true}); err != nil {
		return err
	}
	lab.Sleep(ctx, before+time.Duration(f.draw.Int64N(int64(before))))
	fmt.Fprintf(f.out, "%6.1f s  %s\n", time.Since(f.begun).Seconds(), o.how())
	o.From = time.Now().UnixNano()
	if err := f.endAll(o.orderly); err != nil {
		return err
	}
	saved := f.savedUntil(o.orderly)
	f.skew = o.skew
	if err := f.startAll(ctx); err != nil { // until then nothing is asked, as docs/snapshots.md says
		return err
	}
	o.fault = fault{kind: stop, node: -1, span: lab.Between(o.From, time.Now().UnixNano()), saved: saved}
	if err := f.tell(order{Do: doGoOn}); err != nil {
		return err
	}
	lab.Await(ctx, usedUpWithin, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return o.keysUsedUp(f.accounts) == keptKeys
	})
	lab.Sleep(ctx, 2*reportEvery)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults, f.outages = append(f.faults, o.fault), append(f.outages, o)
	f.played[stop]++
	return nil
}

// how describes the stop.
func (o *outage) how() string {
	how := "all nodes killed"
	if o.orderly {
		how = "all nodes leave"
	}
	return how + fmt.Sprintf(", clocks %+.1f s", o.skew.Seconds())
}

// endAll ends all processes at once.
func (f *fleet) endAll(orderly bool) error {
	var errs []error
	for _, m := range f.members {
		if orderly {
			errs = append(errs, m.process.Leave())
		} else {
			errs = append(errs, m.process.Kill())
		}
	}
	for i, m := range f.members {
		if err := m.left(i); orderly {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// savedUntil returns the time until which all admissions are in the snapshots of nodes that have
// ended: the time at which the oldest of their last snapshots began.
func (f *fleet) savedUntil(orderly bool) int64 {
	saved := int64(math.MaxInt64)
	if orderly {
		return saved
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		if len(m.saved) == 0 {
			return 0
		}
		saved = min(saved, m.saved[len(m.saved)-1])
	}
	return saved
}

// keysUsedUp returns how many kept keys were denied after the start.
func (o *outage) keysUsedUp(accounts map[string]*account) (n int) {
	for key := range keptKeys {
		if a := accounts[fmt.Sprintf("%s %d/%d", keptLimit, o.round, key)]; a != nil && a.Denied > o.To {
			n++
		}
	}
	return n
}

// durable reports whether snapshots have a limit's counts.
func durable(l weir.Limit) bool {
	return l.Durable == weir.Durable || l.Durable == weir.DurableIfLong && l.Per >= time.Hour
}

// since is how many units were admitted before a stop, and may be in no snapshot.
func (a *account) since(f *fault) (units int64) {
	for _, s := range a.Admitted {
		if s.To >= f.saved && s.From <= f.To {
			units++
		}
	}
	return units
}

// judge holds each key of a durable limit that was asked for around the stop to its limit, and
// what the snapshots lack. No window of them ends in a round. If a check after the start was
// decided without the owner, the limit may be admitted once more.
func (o *outage) judge(limits map[string]weir.Limit, accounts map[string]*account) {
	round := fmt.Sprint(o.round)
	for name, a := range accounts {
		limit, key, _ := strings.Cut(name, " ")
		l := limits[limit]
		if of, _, _ := strings.Cut(key, "/"); of != round || limit == giveLimit || !durable(l) {
			continue
		}
		admitted, since, late := int64(len(a.Admitted)), a.since(&o.fault), int64(0)
		after := lab.Between(o.To, math.MaxInt64)
		if slices.ContainsFunc(a.Shared, after.Touches) || slices.ContainsFunc(a.Alone, func(s stoodIn) bool { return s.Touches(after) }) {
			late = l.Rate
		}
		for _, s := range a.Admitted {
			if s.From <= o.To {
				o.before++
			}
		}
		o.since += since
		o.again += max(0, admitted-l.Rate)
		if most := l.Rate + since + late; admitted > most {
			o.problems = append(o.problems, fmt.Sprintf("key %q was admitted %d over a stop (%s): %d at most, of which %d were admitted since the last snapshots",
				name, admitted, o.how(), most, since))
		}
		strays := int64(len(a.Shared) + len(a.Alone))
		if o.orderly && limit == keptLimit && a.Denied > o.To && admitted < l.Rate-strays {
			o.problems = append(o.problems, fmt.Sprintf("key %q was denied after a stop (%s) and had been admitted %d of %d: something is counted twice", name, o.how(), admitted, l.Rate))
		}
	}
	if o.usedUp = o.keysUsedUp(accounts); o.usedUp == 0 {
		o.problems = append(o.problems, fmt.Sprintf("after a stop (%s) no key of a day's limit was used up, so that nothing shows what was lost: use a higher -rate", o.how()))
	}
}

// String is a line of the verdict.
func (o *outage) String() string {
	return fmt.Sprintf("%s: of %d units of durable limits, %d were spent since the last snapshots; %d were admitted again; %d of %d kept keys were used up",
		o.how(), o.before, o.since, o.again, o.usedUp, keptKeys)
}
