package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

// do executes a step. Like launch, it must run on the main thread of the demo.
func (f *fleet) do(ctx context.Context, what step) error {
	f.mu.Lock()
	inc := f.current[what.gateway]
	if what.kind == start && inc != nil && inc.process != nil {
		f.mu.Unlock()
		<-inc.process.Ended() // it was killed or has left, and its ports are in use until then
		f.mu.Lock()
	}
	if what.phase != "" {
		f.say("phase", "%s", what.phase)
	}
	act := f.begin(ctx, what, inc)
	f.mu.Unlock()
	if err := act(); err != nil {
		return fmt.Errorf("gateway %d: %v: %w", what.gateway+1, what.kind, err)
	}
	if what.kind == start {
		again := ""
		if inc != nil {
			again = " again at the same address"
		}
		f.say("start", "gateway %d starts%s, as process %d", what.gateway+1, again, f.current[what.gateway].process.PID())
	}
	return nil
}

// begin records a step that happens now to the incarnation of a gateway, and returns the
// function that executes the step. The caller must hold f.mu, but not while it calls act.
func (f *fleet) begin(ctx context.Context, what step, inc *incarnation) (act func() error) {
	k, now, pid := what.kind, time.Now().UnixNano(), 0
	if inc != nil && inc.process != nil {
		pid = inc.process.PID()
	}
	f.happened = append(f.happened, happening{step: what, from: now, seenBy: never})
	if what.asks != nil {
		f.asks = what.asks
	}
	if kinds[k].does != "" {
		f.say(k.String(), "%s", strings.NewReplacer("{n}", strconv.Itoa(what.gateway+1), "{pid}", strconv.Itoa(pid), "{change}", f.rules.change()).Replace(kinds[k].does))
	}
	if k == kill || k == freeze {
		inc.condition, inc.ready = map[kind]condition{kill: killed, freeze: frozen}[k], false
		inc.down = append(inc.down, lab.Between(now, never))
	}
	switch k {
	case start:
		next := f.place(what.gateway)
		return func() error { return f.launch(next) }
	case leave:
		inc.condition, inc.ready = leaving, false
		return func() error {
			f.polls.Go(func() {
				time.Sleep(drain)
				_ = inc.process.Leave() // the process may have ended by itself, which is recorded
			})
			return nil
		}
	case kill:
		return inc.process.Kill
	case freeze:
		return inc.process.Freeze
	case thaw:
		return func() error {
			err := inc.process.Thaw()
			f.mu.Lock()
			defer f.mu.Unlock()
			inc.condition = joining
			inc.down[len(inc.down)-1].To = time.Now().UnixNano()
			return err
		}
	case reload:
		f.version++
		return func() error { return f.rules.write(f.version, hourlyReloaded) }
	case disconnect:
		return func() error {
			var ended int
			err := inc.process.CallWithin(ctx, callTimeout, "Gateway.Break", 0, &ended)
			f.mu.Lock()
			defer f.mu.Unlock()
			f.cut += ended
			return err
		}
	case cut, heal:
		f.away[what.gateway] = k == cut
	case sever, rejoin:
		for i := range f.away {
			f.away[i] = k == sever && f.region(i) == f.region(what.gateway)
		}
	case slowDown, speedUp:
		f.slowed[what.gateway] = k == slowDown
	}
	return func() error { return nil } // the next reports set the links
}

// links returns the links from a gateway, by address: to all other gateways if the run
// has buttons, to the gateways of other regions if it has regions, and otherwise nil. The
// caller must hold f.mu.
func (f *fleet) links(gateway int) map[string]link {
	if !f.served && len(f.regions) == 0 {
		return nil
	}
	links := make(map[string]link)
	for i, other := range f.sites[:f.nodes] {
		l := link{Cut: f.away[gateway] != f.away[i]}
		abroad := f.region(i) != f.region(gateway)
		if abroad {
			l.Delay = oneWay
		}
		for _, end := range []int{gateway, i} {
			if f.slowed[end] {
				l.Delay += slowBy
			}
		}
		if i != gateway && (abroad || f.served) {
			links[other.Bind] = l
		}
	}
	return links
}

// seenWithin is the maximum time until all gateways have seen a step, or each other.
const seenWithin = 15 * time.Second

var errFailed = errors.New("a gateway has failed: the rest of the run would show nothing")

// canHappen reports whether a step may happen now. The error is not nil if a gateway has
// failed, or if the previous step was not seen in time.
func (f *fleet) canHappen(next step, now time.Time) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.current, func(inc *incarnation) bool { return inc.hasCondition(failed) }) {
		return false, errFailed
	}
	if len(f.happened) == 0 {
		return true, nil
	}
	h := f.happened[len(f.happened)-1]
	if f.isSettled() {
		return f.isSettledSince(next.calm, now.UnixNano()), nil
	}
	if now.UnixNano()-h.from > int64(seenWithin) {
		return false, fmt.Errorf("%v: not all gateways had seen it after %v", h.step, seenWithin)
	}
	return false, nil
}

// pick returns a random ready gateway, as a load balancer does, in a region that the demand
// determines, or nil if no gateway of that region is ready.
func (f *fleet) pick(random *rand.Rand) *incarnation {
	f.mu.Lock()
	defer f.mu.Unlock()
	chosen, alive, region := (*incarnation)(nil), 0, 0
	if len(f.asks) > 0 {
		region = f.asks[random.IntN(len(f.asks))]
	}
	for _, inc := range f.current {
		if inc != nil && inc.ready && f.region(inc.gateway) == region {
			if alive++; random.IntN(alive) == 0 {
				chosen = inc
			}
		}
	}
	return chosen
}
