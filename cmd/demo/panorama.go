package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/page"
	"github.com/weir-go/weir/rules"
)

// panorama is the whole fleet, as its page shows it: who is there as the demo knows it,
// who hears whom, and what all gateways have counted. It implements page.Actor, and its
// methods are safe for concurrent use.
type panorama struct {
	fleet   *fleet
	recent  *recent
	limits  []watchable
	presses chan press // for serve, which does them; few at once
}

// watchable is a limit of the rules, whose keys can be watched.
type watchable struct {
	name, rule string
	per        time.Duration
}

// maxAnswer bounds what is read of a gateway's answer, in bytes.
const maxAnswer = 1 << 20

func newPanorama(f *fleet, r *recent) (*panorama, error) {
	text, err := os.ReadFile(f.rules.path)
	if err != nil {
		return nil, err
	}
	set, err := rules.Parse(f.rules.path, text)
	if err != nil {
		return nil, err
	}
	p := &panorama{fleet: f, recent: r, presses: make(chan press, 8)}
	for _, rule := range set.Rules() {
		for i := range rule.Limits {
			l := &rule.Limits[i]
			p.limits = append(p.limits, watchable{l.Name, rule.Name, l.For("").Per})
		}
	}
	return p, nil
}

// tells reports whether a gateway's own view counts. f.mu is held.
func tells(inc *incarnation) bool {
	return inc != nil && (inc.condition == up || inc.condition == joining) && inc.report.Figures != nil
}

// sides numbers the gateways that hear each other, directly or through others, from 1 on,
// the largest side first; all are 0 if there is one side. f.mu is held.
func (f *fleet) sides() []int {
	sides := make([]int, len(f.current))
	hears := func(i, j int) bool {
		return slices.ContainsFunc(f.current[i].report.Members, func(m seen) bool {
			return m.Name == f.current[j].report.Name && (m.State == weir.Serving || m.State == weir.Joining)
		})
	}
	var members [][]int
	for i, inc := range f.current {
		if !tells(inc) || inc.condition != up || sides[i] > 0 {
			continue
		}
		sides[i] = len(members) + 1
		members = append(members, []int{i})
		for next := members[len(members)-1]; len(next) > 0; next = next[1:] {
			for j, other := range f.current {
				if sides[j] == 0 && tells(other) && other.condition == up && (hears(next[0], j) || hears(j, next[0])) {
					sides[j] = sides[i]
					next = append(next, j)
					members[sides[i]-1] = append(members[sides[i]-1], j)
				}
			}
		}
	}
	if len(members) < 2 {
		return make([]int, len(f.current))
	}
	slices.SortStableFunc(members, func(a, b []int) int { return cmp.Compare(len(b), len(a)) })
	for n, side := range members {
		for _, i := range side {
			sides[i] = n + 1
		}
	}
	return sides
}

// speaker is a gateway of the largest side, nil if none is there. f.mu is held.
func (f *fleet) speaker(sides []int) (first *incarnation) {
	for i, inc := range f.current {
		if tells(inc) && sides[i] <= 1 && (first == nil || first.condition != up && inc.condition == up) {
			first = inc
		}
	}
	return first
}

// Snapshot implements page.Source.
func (p *panorama) Snapshot() page.Snapshot {
	f := p.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	s := page.Snapshot{Name: fmt.Sprintf("demo of %d gateways", f.nodes)}
	for _, l := range p.limits {
		s.Limits = append(s.Limits, l.name)
	}
	sides := f.sides()
	share := make([]float64, len(f.current))
	if speaker := f.speaker(sides); speaker != nil {
		for name, part := range speaker.report.Figures.Ring {
			if i := gatewayOf(name); i >= 0 && i < len(share) {
				share[i] += part
			}
		}
	}
	missing := make(map[string]bool) // of the largest side: on another all of that are missed
	for i, inc := range f.current[:f.nodes] {
		m := page.Member{ID: label(i), Name: label(i), Health: page.Missing, State: "not there", Share: share[i], Side: sides[i], Actions: f.actions(i)}
		if inc != nil {
			m.Addr, m.Process, m.State = inc.report.HTTP, inc.report.Name, inc.condition.String()
			switch {
			case sides[i] > 1:
				m.State = "cut off"
			case inc.condition == up:
				m.Health = page.Serving
			case slices.Contains([]condition{starting, joining, leaving}, inc.condition):
				m.Health = page.Changing
			}
			m.Note = f.note(i)
		}
		s.Members = append(s.Members, m)
		if !tells(inc) {
			continue
		}
		of := inc.report.Figures
		s.Counters = append(s.Counters, page.Counters{Process: inc.report.Name, Decisions: of.Decisions, Latency: of.Latency})
		if o := of.Outage; !o.Since.IsZero() && sides[i] <= 1 {
			if s.Outage.Since.IsZero() || o.Since.Before(s.Outage.Since) {
				s.Outage.Since = o.Since
			}
			s.Outage.Decisions += o.Decisions
			for _, name := range o.Missing {
				missing[label(gatewayOf(name))] = true
			}
		}
	}
	s.Outage.Missing = slices.Sorted(maps.Keys(missing))
	return s
}

// note is what else is worth knowing of a gateway. f.mu is held.
func (f *fleet) note(gateway int) string {
	var notes []string
	if inc := f.current[gateway]; inc.process != nil && (inc.condition == frozen || tells(inc)) {
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

// ask asks the admin API of a gateway of the largest side.
func (p *panorama) ask(ctx context.Context, path string, query url.Values, into any) error {
	p.fleet.mu.Lock()
	speaker := p.fleet.speaker(p.fleet.sides())
	p.fleet.mu.Unlock()
	if speaker == nil {
		return errors.New("no gateway is up")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.fleet.adminURL(speaker)+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+p.fleet.token)
	response, err := speaker.client.Do(r)
	if err != nil {
		return fmt.Errorf("%s does not answer", label(speaker.gateway))
	}
	defer response.Body.Close()
	body := json.NewDecoder(io.LimitReader(response.Body, maxAnswer))
	if response.StatusCode != http.StatusOK {
		var problem struct{ Detail string }
		_ = body.Decode(&problem)
		return fmt.Errorf("%s answers %s: %s", label(speaker.gateway), response.Status, problem.Detail)
	}
	return body.Decode(into)
}

// Top implements page.Source.
func (p *panorama) Top(ctx context.Context) (weir.TopKeys, error) {
	type key struct {
		Limit, ID     string
		Key           *string
		Asks, Denials uint64
	}
	var answer struct {
		Asked, Denied   []key
		Missing, Silent []string
	}
	if err := p.ask(ctx, "/v1/top", url.Values{"n": {"8"}}, &answer); err != nil {
		return weir.TopKeys{}, err
	}
	keys := func(of []key) (all []weir.TopKey) {
		for _, k := range of {
			t := weir.TopKey{Limit: k.Limit, Asks: k.Asks, Denials: k.Denials}
			if id, err := hex.DecodeString(k.ID); err == nil {
				copy(t.ID[:], id)
			}
			if k.Key != nil {
				t.Key, t.Known = *k.Key, true
			}
			all = append(all, t)
		}
		return all
	}
	for _, names := range [][]string{answer.Missing, answer.Silent} {
		for i, name := range names {
			names[i] = label(gatewayOf(name))
		}
	}
	return weir.TopKeys{Asked: keys(answer.Asked), Denied: keys(answer.Denied), Missing: answer.Missing, Silent: answer.Silent}, nil
}

// Watch implements page.Source. What clients were granted is known of the demo's own
// limit alone.
func (p *panorama) Watch(ctx context.Context, limit, key string) (page.Watched, error) {
	i := slices.IndexFunc(p.limits, func(l watchable) bool { return l.name == limit })
	if i < 0 {
		return page.Watched{}, fmt.Errorf("there is no limit %q", limit)
	}
	var answer struct {
		Limits []struct {
			Name, Owner, Source string
			Limit, Remaining    int64
		}
	}
	if err := p.ask(ctx, "/v1/status", url.Values{"key": {key}, "rule": {p.limits[i].rule}}, &answer); err != nil {
		return page.Watched{}, err
	}
	for _, l := range answer.Limits {
		if l.Name == limit {
			w := page.Watched{Limit: l.Limit, Used: max(0, l.Limit-l.Remaining), Per: p.limits[i].per, Owner: label(gatewayOf(l.Owner)), Source: l.Source, Counted: -1}
			if client := clientOf(key); limit == clientLimit && client >= 0 {
				w.Counted = int64(p.recent.lately(client, time.Now().UnixNano()))
			}
			return w, nil
		}
	}
	return page.Watched{}, fmt.Errorf("the gateways have no limit %q", limit)
}
