package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/page"
)

// slowBy is what a slowed link takes longer each way: there and back it is less than
// timeout, so that all that it slows is slow and right.
const slowBy = 25 * time.Millisecond

// maxKept bounds what is remembered of faults while gateways are served.
const maxKept = 100

// panorama is the whole fleet, as its page shows it: the gateways as the demo knows them, the
// sides that are connected to each other, and what all gateways have counted. It implements page.Actor, and its
// methods are safe for concurrent use.
type panorama struct {
	fleet   *fleet
	tally   *tally
	presses chan press // for serve, which does them; few at once
}

// sourceOf serves what a gateway's own page would ask its source for, in JSON, so that the
// demo's page can ask for it as well.
func sourceOf(s page.Source) http.Handler {
	routes := http.NewServeMux()
	answer := func(path string, of func(*http.Request) (any, error)) {
		routes.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			v, err := of(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			json.NewEncoder(w).Encode(v)
		})
	}
	answer("/top", func(r *http.Request) (any, error) { return s.Top(r.Context()) })
	answer("/watch", func(r *http.Request) (any, error) {
		return s.Watch(r.Context(), r.FormValue("limit"), r.FormValue("key"))
	})
	return routes
}

// ask asks a gateway of the largest side for what its own page's source knows.
func (p *panorama) ask(ctx context.Context, what string, query url.Values, into any) error {
	p.fleet.mu.Lock()
	speaker := p.fleet.speaker()
	p.fleet.mu.Unlock()
	if speaker == nil {
		return errors.New("no gateway is up")
	}
	url := speaker.adminURL() + "/page/" + what + "?" + query.Encode()
	response, text, err := speaker.get(ctx, url, http.Header{"Authorization": {"Bearer " + p.fleet.token}})
	switch {
	case err != nil:
		return fmt.Errorf("%s does not answer", label(speaker.gateway))
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%s answers: %s", label(speaker.gateway), bytes.TrimSpace(text))
	}
	return json.Unmarshal(text, into)
}

// Top implements page.Source.
func (p *panorama) Top(ctx context.Context) (top weir.TopKeys, err error) {
	err = p.ask(ctx, "top", nil, &top)
	top.Missing, top.Silent = labels(top.Missing), labels(top.Silent)
	return top, err
}

// Watch implements page.Source. What clients were granted is known of the demo's own
// limit alone.
func (p *panorama) Watch(ctx context.Context, limit, key string) (w page.Watched, err error) {
	err = p.ask(ctx, "watch", url.Values{"limit": {limit}, "key": {key}}, &w)
	w.Owner = labelOf(w.Owner)
	if client := clientOf(key); err == nil && limit == clientLimit && client >= 0 {
		w.Counted = int64(p.tally.lately(client, time.Now().UnixNano(), p.fleet.per))
	}
	return w, err
}

// tells reports whether a gateway's own view counts. f.mu is held.
func tells(inc *incarnation) bool { return inc.is(up, joining) && inc.report.Page != nil }

// speaker returns the gateway that is connected to the most gateways that are up, or nil if none is there. The
// caller must hold f.mu.
func (f *fleet) speaker() (first *incarnation) {
	most := -1
	for _, inc := range f.current {
		heard := 0
		for _, other := range f.current {
			if inc.is(up) && other.is(up) && inc.report.hears(other.report.Name) {
				heard++
			}
		}
		if tells(inc) && heard > most {
			first, most = inc, heard
		}
	}
	return first
}

// sides returns for each gateway that is up 1 if the speaker is connected to it, and otherwise 2. If it is connected to
// all, all are 0. A cut has two sides. The caller must hold f.mu.
func (f *fleet) sides(speaker *incarnation) []int {
	sides := make([]int, len(f.current))
	for i, inc := range f.current {
		if tells(inc) && inc.is(up) {
			if sides[i] = 2; speaker.report.hears(inc.report.Name) {
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
	s.Past = slices.Clone(s.Past) // a report is shared
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
			case inc.is(up):
				m.Health = page.Serving
			case inc.is(starting, joining, leaving):
				m.Health = page.Changing
			}
		}
		s.Members = append(s.Members, m)
		if !tells(inc) {
			continue
		}
		s.Counters = append(s.Counters, inc.report.Page.Counters...)
		if o := inc.report.Page.Outage; !o.Since.IsZero() && sides[i] <= 1 { // on another side all of the largest are missed
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

// note is what else is worth knowing of a gateway. f.mu is held.
func (f *fleet) note(gateway int) string {
	var notes []string
	if inc := f.current[gateway]; inc.process != nil && (inc.is(frozen) || tells(inc)) {
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

// buttons are what can be done to a gateway, and what undoes it, in the order in which the page
// shows them.
var buttons = [...][2]kind{{kill, start}, {freeze, thaw}, {slowDown, speedUp}, {cut, heal}}

// press is a button that was pressed.
type press struct {
	what    step
	refused chan<- error // has room for one
}

// actions are a gateway's buttons as they are now. f.mu is held.
func (f *fleet) actions(gateway int) []page.Action {
	inc := f.current[gateway]
	runs := inc.is(starting, joining, up)
	done := map[kind]bool{kill: inc.is(killed, failed, gone), freeze: inc.is(frozen), slowDown: f.slowed[gateway], cut: f.away[gateway]}
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

// press does what a button says, if it is there to be pressed. Like fleet.do, it belongs on
// the demo's own thread.
func (f *fleet) press(ctx context.Context, what step) error {
	f.mu.Lock()
	able := slices.Contains(f.actions(what.gateway), page.Action{Name: what.kind.String()})
	f.mu.Unlock()
	if !able {
		return fmt.Errorf("%v: it is done already, or not possible now", what)
	}
	return f.do(ctx, what)
}

// trim forgets what a verdict would need, of which there is none while gateways are served.
func (f *fleet) trim() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.happened, f.broken = newest(f.happened), newest(f.broken)
	f.all = slices.DeleteFunc(f.all, func(inc *incarnation) bool { return f.current[inc.gateway] != inc }) // they have ended
}

// newest returns the last of all, at most maxKept.
func newest[T any](all []T) []T { return slices.Delete(all, 0, max(0, len(all)-maxKept)) }

var errBusy = errors.New("other buttons are being pressed: try again")

// Act implements page.Actor. It hands the step to serve, and waits until it is done.
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
