package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/page"
)

// slowBy is the additional delay of a link in each direction, for each slowed end. If one
// end is slowed, a round trip takes less than timeout, so that checks are slow but exact.
const slowBy = 25 * time.Millisecond

// maxKept is the maximum number of records of a kind that the function newest keeps.
const maxKept = 100

// panorama is the view of the whole fleet on its page: the gateways as the demo knows
// them, the sides that are connected to each other, and the sums of the counters of all
// gateways. It implements page.Actor, and its methods are safe for concurrent use.
type panorama struct {
	fleet   *fleet
	tally   *tally
	presses chan press // they are executed by serve; there are only a few at a time
}

// call calls a method of a gateway on the largest side. The caller must not read reply
// after an error.
func (p *panorama) call(ctx context.Context, method string, args, reply any) error {
	p.fleet.mu.Lock()
	speaker := p.fleet.speaker()
	p.fleet.mu.Unlock()
	if speaker == nil {
		return errors.New("no gateway is up")
	}
	if err := speaker.process.CallWithin(ctx, giveUp, method, args, reply); err != nil {
		return fmt.Errorf("%s does not answer: %w", label(speaker.gateway), err)
	}
	return nil
}

// Top implements page.Source.
func (p *panorama) Top(ctx context.Context) (weir.TopKeys, error) {
	var top weir.TopKeys
	if err := p.call(ctx, "Gateway.Top", 0, &top); err != nil {
		return weir.TopKeys{}, err
	}
	top.Missing, top.Silent = labels(top.Missing), labels(top.Silent)
	return top, nil
}

// Watch implements page.Source. It sets Watched.Counted, the grants that clients received,
// for the limit of the demo's traffic only.
func (p *panorama) Watch(ctx context.Context, limit, key string) (page.Watched, error) {
	var w page.Watched
	if err := p.call(ctx, "Gateway.Watch", [2]string{limit, key}, &w); err != nil {
		return page.Watched{}, err
	}
	w.Owner = labelOf(w.Owner)
	if client := clientOf(key); limit == clientLimit && client >= 0 {
		w.Counted = int64(p.tally.recentAdmissions(client, time.Now().UnixNano(), p.fleet.per))
	}
	return w, nil
}

// hasView reports whether the page uses the view of a gateway. The caller must hold f.mu.
func hasView(inc *incarnation) bool { return inc.hasCondition(up, joining) && inc.report.Page != nil }

// speaker returns the gateway that is connected to the most gateways that are up, or nil
// if no gateway has a view. The caller must hold f.mu.
func (f *fleet) speaker() (first *incarnation) {
	most := -1
	for _, inc := range f.current {
		heard := 0
		for _, other := range f.current {
			if inc.hasCondition(up) && other.hasCondition(up) && inc.report.isConnectedTo(other.report.Name) {
				heard++
			}
		}
		if hasView(inc) && heard > most {
			first, most = inc, heard
		}
	}
	return first
}

// sides returns a number for each gateway: 1 if the gateway is up and the speaker is
// connected to it, 2 if it is up and the speaker is not connected to it, and otherwise 0. If
// no gateway has a 2, all numbers are 0. A cut has two sides. The caller must hold f.mu.
func (f *fleet) sides(speaker *incarnation) []int {
	sides := make([]int, len(f.current))
	for i, inc := range f.current {
		if hasView(inc) && inc.hasCondition(up) {
			if sides[i] = 2; speaker.report.isConnectedTo(inc.report.Name) {
				sides[i] = 1
			}
		}
	}
	if !slices.Contains(sides, 2) {
		clear(sides)
	}
	return sides
}

// Snapshot implements page.Source.
func (p *panorama) Snapshot() (s page.Snapshot) {
	f := p.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	speaker := f.speaker()
	sides, share := f.sides(speaker), make(map[int]float64)
	if speaker != nil {
		s = *speaker.report.Page
		for _, m := range s.Members {
			share[gatewayOf(m.ID)] += m.Share
		}
	}
	s.Name, s.Members, s.Counters, s.Outage = fmt.Sprintf("demo of %d gateways", f.nodes), nil, nil, weir.OutageStats{}
	s.Past = slices.Clone(s.Past) // reports are shared
	for i := range s.Past {
		s.Past[i].Missing = labels(s.Past[i].Missing)
	}
	for i, inc := range f.current[:f.nodes] {
		m := page.Member{ID: label(i), Name: label(i), Health: page.Missing, State: "not there", Share: share[i], Side: sides[i], Actions: f.actions(i)}
		if inc != nil {
			m.Addr, m.Process, m.State, m.Note = inc.site.HTTP, inc.report.Name, inc.condition.String(), f.note(i)
			switch {
			case sides[i] > 1:
				m.State = "cut off"
			case inc.hasCondition(up):
				m.Health = page.Serving
			case inc.hasCondition(starting, joining, leaving):
				m.Health = page.Changing
			}
		}
		s.Members = append(s.Members, m)
		if !hasView(inc) {
			continue
		}
		s.Counters = append(s.Counters, inc.report.Page.Counters...)
		if o := inc.report.Page.Outage; !o.Since.IsZero() && sides[i] <= 1 { // the other side misses all gateways of the largest side
			if s.Outage.Since.IsZero() || o.Since.Before(s.Outage.Since) {
				s.Outage.Since = o.Since
			}
			s.Outage.Decisions += o.Decisions
			s.Outage.Missing = append(s.Outage.Missing, labels(o.Missing)...)
		}
	}
	slices.Sort(s.Outage.Missing)
	s.Outage.Missing = slices.Compact(s.Outage.Missing)
	return s
}

// note returns additional information about a gateway. The caller must hold f.mu.
func (f *fleet) note(gateway int) string {
	var notes []string
	if inc := f.current[gateway]; inc.process != nil && (inc.hasCondition(frozen) || hasView(inc)) {
		notes = append(notes, fmt.Sprintf("process %d", inc.process.PID()))
	}
	if f.away[gateway] {
		notes = append(notes, "behind the cut")
	}
	if f.slowed[gateway] {
		notes = append(notes, fmt.Sprintf("%v slower each way", slowBy))
	}
	return strings.Join(notes, ", ")
}

// buttons contains pairs of a step and the step that undoes it, in the order on the page.
var buttons = [...][2]kind{{kill, start}, {freeze, thaw}, {slowDown, speedUp}, {cut, heal}}

type press struct {
	what    step
	refused chan<- error // receives the error of the step, or nil; has room for it
}

// actions returns the current buttons of a gateway. The caller must hold f.mu.
func (f *fleet) actions(gateway int) []page.Action {
	inc := f.current[gateway]
	runs := inc.hasCondition(starting, joining, up)
	done := map[kind]bool{kill: inc.hasCondition(killed, failed, gone), freeze: inc.hasCondition(frozen), slowDown: f.slowed[gateway], cut: f.away[gateway]}
	off := map[kind]bool{kill: !runs && !done[freeze], freeze: !runs || !lab.Signals}
	all := make([]page.Action, len(buttons))
	for i, b := range buttons {
		all[i] = page.Action{Name: b[0].String(), Off: off[b[0]]}
		if done[b[0]] {
			all[i] = page.Action{Name: b[1].String()}
		}
	}
	return all
}

// press executes the step of a button, if the button is enabled. Like fleet.do, it must
// run on the main thread of the demo.
func (f *fleet) press(ctx context.Context, what step) error {
	f.mu.Lock()
	able := slices.Contains(f.actions(what.gateway), page.Action{Name: what.kind.String()})
	f.mu.Unlock()
	if !able {
		return fmt.Errorf("%v: it is done already, or not possible now", what)
	}
	return f.do(ctx, what)
}

// trim removes the oldest steps and broken promises, and the incarnations that were replaced. It is
// for served gateways, which get no verdict, and for the time between the rounds of a soak.
func (f *fleet) trim() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.happened, f.broken = newest(f.happened), newest(f.broken)
	f.all = slices.DeleteFunc(f.all, func(inc *incarnation) bool { return f.current[inc.gateway] != inc }) // dropped incarnations have ended
}

// newest returns the last maxKept elements of a slice.
func newest[T any](all []T) []T { return slices.Delete(all, 0, max(0, len(all)-maxKept)) }

var errBusy = errors.New("other buttons are being pressed: try again")

// Act implements page.Actor. It passes the step to serve, and waits for the end of the step
// or of ctx.
func (p *panorama) Act(ctx context.Context, member, action string) error {
	gateway := gatewayOf(member + "-")
	if gateway < 0 || gateway >= p.fleet.nodes {
		return fmt.Errorf("there is no gateway %q", member)
	}
	k := slices.IndexFunc(kinds[:], func(k kindOf) bool { return k.name == action })
	if k < 0 {
		return fmt.Errorf("there is no button %q", action)
	}
	refused := make(chan error, 1)
	select {
	case p.presses <- press{step{kind: kind(k), gateway: gateway}, refused}:
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
