package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/page"
)

// slowBy is what a slowed link takes longer each way: there and back it is less than
// timeout, so that all that it slows is slow and right.
const slowBy = 25 * time.Millisecond

// maxKept bounds what is remembered of faults while gateways are served.
const maxKept = 100

// button is what can be done to a gateway, and what undoes it.
type button struct {
	does, undoes kind
}

// buttons are in the order in which the page shows them.
var buttons = [...]button{{kill, start}, {freeze, thaw}, {slowDown, speedUp}, {cut, heal}}

// press is a button that was pressed.
type press struct {
	what    step
	refused chan<- error // has room for one
}

// actions are a gateway's buttons as they are now. f.mu is held.
func (f *fleet) actions(gateway int) []page.Action {
	inc := f.current[gateway]
	runs := inc != nil && slices.Contains([]condition{starting, joining, up}, inc.condition)
	done := map[kind]bool{
		kill:     inc != nil && slices.Contains([]condition{killed, failed, gone}, inc.condition),
		freeze:   inc != nil && inc.condition == frozen,
		slowDown: f.slowed[gateway],
		cut:      f.away[gateway],
	}
	able := map[kind]bool{
		kill: runs || done[freeze], start: true,
		freeze: runs && lab.Signals, thaw: true,
		slowDown: true, speedUp: true, cut: true, heal: true,
	}
	all := make([]page.Action, len(buttons))
	for i, b := range buttons {
		k := b.does
		if done[k] {
			k = b.undoes
		}
		all[i] = page.Action{Name: k.String(), Off: !able[k]}
	}
	return all
}

// press does what a button says, if it is there to be pressed. Like fleet.do, it belongs on
// the demo's own thread.
func (f *fleet) press(what step) error {
	f.mu.Lock()
	var able []string
	for _, a := range f.actions(what.gateway) {
		if !a.Off {
			able = append(able, a.Name)
		}
	}
	f.mu.Unlock()
	if !slices.Contains(able, what.kind.String()) {
		return fmt.Errorf("%v: it is done already, or not possible now", what)
	}
	return f.do(what)
}

// links is what is between a gateway and the others. f.mu is held.
func (f *fleet) links(gateway int) map[string]link {
	links := make(map[string]link)
	for i, other := range f.current {
		if i == gateway || other == nil || other.report.Addr == "" {
			continue
		}
		l := link{Cut: f.away[gateway] != f.away[i]}
		for _, end := range []int{gateway, i} {
			if f.slowed[end] {
				l.Delay += slowBy
			}
		}
		links[other.report.Addr] = l
	}
	return links
}

// relink tells all gateways what is between them now.
func (f *fleet) relink() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, inc := range f.current {
		if inc != nil {
			f.order(inc)
		}
	}
}

// order tells a gateway what is between it and the others, unless it is frozen: then it
// is told when it goes on, since nobody reads what it is told meanwhile. f.mu is held.
func (f *fleet) order(inc *incarnation) {
	if !f.served || inc.process == nil || !slices.Contains([]condition{starting, joining, up}, inc.condition) {
		return
	}
	_ = inc.process.Order(order{Links: f.links(inc.gateway)}) // one that has ended is told at its start
}

// trim forgets what a verdict would need, of which there is none while gateways are served.
func (f *fleet) trim() {
	f.mu.Lock()
	defer f.mu.Unlock()
	keep := func(n int) int { return max(0, n-maxKept) }
	f.happened = slices.Delete(f.happened, 0, keep(len(f.happened)))
	f.events = slices.Delete(f.events, 0, keep(len(f.events)))
	f.deaf = slices.Delete(f.deaf, 0, keep(len(f.deaf)))
	f.broken = slices.Delete(f.broken, 0, keep(len(f.broken)))
	f.all = slices.DeleteFunc(f.all, func(inc *incarnation) bool {
		select {
		case <-inc.over:
			return f.current[inc.gateway] != inc
		default:
			return false
		}
	})
}

var errBusy = errors.New("other buttons are being pressed: try again")

// Act implements page.Actor.
func (p *panorama) Act(ctx context.Context, member, action string) error {
	gateway := gatewayOf(member + "-")
	if gateway < 0 || gateway >= p.fleet.nodes {
		return fmt.Errorf("there is no gateway %q", member)
	}
	what := step{gateway: gateway}
	for _, b := range buttons {
		for _, k := range []kind{b.does, b.undoes} {
			if k.String() == action {
				what.kind = k
				return p.pressed(ctx, what)
			}
		}
	}
	return fmt.Errorf("there is no button %q", action)
}

// pressed hands a step to whoever does it, and waits until it is done.
func (p *panorama) pressed(ctx context.Context, what step) error {
	refused := make(chan error, 1)
	select {
	case p.presses <- press{what, refused}:
	default:
		return errBusy
	}
	select {
	case err := <-refused:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
